"""state.json: a view that others read, and that nothing depends on."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from phasegate.core.display.next_steps import next_steps
from phasegate.core.workflow.phase_transitions import Workflow
from phasegate.errors import StateConflict
from phasegate.storage.state_view import write_state_view

WORKFLOW = Workflow("001-login", "feature", ("01-requirements", "03-architecture"), index=1)


@pytest.mark.demand("W2.a", "W2.d")
def test_the_view_has_the_fields_of_the_specification(tmp_path: Path) -> None:
    write_state_view(tmp_path, WORKFLOW)
    state = json.loads((tmp_path / ".isdlc" / "state.json").read_text())
    assert state == {
        "active_workflow": {
            "type": "feature",
            "phases": ["01-requirements", "03-architecture"],
            "current_phase": "03-architecture",
            "current_phase_index": 1,
            "artifact_folder": "001-login",
            "phase_status": {"01-requirements": "completed", "03-architecture": "in_progress"},
        }
    }
    assert next_steps(state) is not None
    write_state_view(tmp_path, None)
    assert json.loads((tmp_path / ".isdlc" / "state.json").read_text()) == {"active_workflow": None}


@pytest.mark.demand("W2.b")
def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / ".isdlc" / "state.json"
    write_state_view(tmp_path, WORKFLOW)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            write_state_view(tmp_path, WORKFLOW)
            write_state_view(tmp_path, None)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = {json.dumps(json.loads(path.read_text())) for _ in range(300)}
    finally:
        stop.set()
        writer.join()
    assert 1 <= len(seen) <= 2
    assert sorted(found.name for found in path.parent.iterdir()) == ["phasegate.json", "state.json"]


@pytest.mark.demand("W2.c")
@pytest.mark.parametrize(
    "content", [b"", b"{", b"\0" * 99, b"\xef\xbb\xbf{}", b"[]", b'{"active_workflow": 7}']
)
def test_a_damaged_view_is_written_anew(tmp_path: Path, content: bytes) -> None:
    write_state_view(tmp_path, WORKFLOW)
    path = tmp_path / ".isdlc" / "state.json"
    whole = path.read_bytes()
    path.write_bytes(content)
    write_state_view(tmp_path, WORKFLOW)
    assert path.read_bytes() == whole


@pytest.mark.demand("W2.b")
@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "folder is a link"])
def test_what_is_no_plain_file_is_refused_at_once_and_never_followed(
    tmp_path: Path, kind: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "state.json").write_text("kept")
    folder = tmp_path / "repository" / ".isdlc"
    folder.parent.mkdir()
    if kind == "folder is a link":
        folder.symlink_to(outside)
    else:
        folder.mkdir()
        path = folder / "state.json"
        {
            "link": lambda: path.symlink_to(outside / "state.json"),
            "pipe": lambda: os.mkfifo(path),
            "folder": path.mkdir,
        }[kind]()
    with pytest.raises(StateConflict):
        write_state_view(folder.parent, WORKFLOW)
    assert (outside / "state.json").read_text() == "kept"


@pytest.mark.demand("W2.e")
def test_another_tools_state_is_kept_beside(tmp_path: Path) -> None:
    folder = tmp_path / ".isdlc"
    folder.mkdir()
    foreign = '{"active_workflow": null, "history": [1, 2]}'
    (folder / "state.json").write_text(foreign)
    write_state_view(tmp_path, WORKFLOW)
    write_state_view(tmp_path, None)
    assert (folder / "state.json.kept").read_text() == foreign
    assert json.loads((folder / "state.json").read_text()) == {"active_workflow": None}


@pytest.mark.demand("W2.b")
def test_what_a_killed_writer_left_beside_the_view_goes_with_the_next_one(tmp_path: Path) -> None:
    """Only when it is old: another writer may be about to put its own in place."""
    write_state_view(tmp_path, WORKFLOW)
    old, fresh, foreign = (
        tmp_path / ".isdlc" / name for name in (".phasegate-1-0.tmp", ".phasegate-2-0.tmp", "x.tmp")
    )
    for path in (old, fresh, foreign):
        path.write_text("{")
    for path in (old, foreign):
        os.utime(path, (0, 0))
    write_state_view(tmp_path, WORKFLOW)
    assert [path.exists() for path in (old, fresh, foreign)] == [False, True, True]
