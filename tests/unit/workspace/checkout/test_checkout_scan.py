"""Which files a look at a checkout takes for untouched."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.files.safe_open import folder_descriptor
from phasegate.workspace.checkout.checkout import load_start, records_folder
from phasegate.workspace.checkout.checkout_scan import scan_checkout
from phasegate.workspace.repository.disk_files import CheckoutLimits
from phasegate.workspace.repository.ignore import IgnoreRules
from phasegate.workspace.repository.index_file import IndexSnapshot
from support.git_project import make_checkout, make_repository

LOGIN = "src/login.py"


@pytest.mark.demand("D6.a")
def test_an_edit_in_the_same_tick_as_the_end_of_the_checkout_is_seen(tmp_path: Path) -> None:
    """Its times are those on record, and its size too: only that they are not older than the checkout tells."""
    checkout = make_checkout(make_repository(tmp_path / "project"))
    index = records_folder(checkout.repository, checkout.assignment.name) / "index"
    path, start = (
        checkout.folder / LOGIN,
        load_start(index.read_bytes(), checkout.record, checkout.repository),
    )
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(b"#" * size)
    now = path.stat()
    was = start.snapshot.folders["src"]["login.py"]
    recorded = (now.st_ctime_ns, now.st_mtime_ns, *was[2:])
    folders = {
        **start.snapshot.folders,
        "src": {**start.snapshot.folders["src"], "login.py": recorded},
    }
    edited = start._replace(snapshot=IndexSnapshot(folders))

    def found(stamp_ns: int) -> set[str]:
        with folder_descriptor(checkout.folder) as root:
            return {
                *scan_checkout(
                    root,
                    edited._replace(stamp_ns=stamp_ns),
                    lambda: IgnoreRules({}),
                    CheckoutLimits(),
                ).found
            }

    assert LOGIN in found(now.st_ctime_ns)
    assert LOGIN in found(0)
    assert LOGIN not in found(
        now.st_ctime_ns + 1
    )  # the control: an older file with these times is not looked at
