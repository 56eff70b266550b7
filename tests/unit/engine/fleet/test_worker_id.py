"""The id of a worker: kept for a clone on a machine, and never shared by two machines."""

from __future__ import annotations

from pathlib import Path

from phasegate.engine.fleet.worker import load_worker_id
from phasegate.storage.location import Location


def test_two_machines_with_the_same_host_name_and_path_are_two_identities(tmp_path: Path) -> None:
    """The host name is not part of the id: the path of the clone is all that the two share."""
    clone = tmp_path / "shop"
    one, other = (
        Location(clone, clone / ".git", tmp_path / f"machine-{number}" / "state")
        for number in range(2)
    )
    first = load_worker_id(one)
    assert load_worker_id(other) != first
    assert load_worker_id(one) == first, "a worker that starts again is the same one"
    second_clone = one._replace(git_dir=tmp_path / "other" / ".git")
    assert load_worker_id(second_clone) != first


def test_an_empty_file_of_an_interrupted_write_gets_a_new_id(tmp_path: Path) -> None:
    location = Location(tmp_path, tmp_path / ".git", tmp_path / "state")
    load_worker_id(location)
    (path,) = (tmp_path / "state" / "fleet").iterdir()
    path.write_bytes(b"")
    made = load_worker_id(location)
    assert made
    assert load_worker_id(location) == made
