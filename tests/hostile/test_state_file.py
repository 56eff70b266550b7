"""Bad state of every kind (ATTACKS H): the hook says nothing or all of it, never crashes, never hangs, never writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasegate import next_steps
from phasegate.core.workflow.workflow_phases import WORKFLOWS
from phasegate.storage.state_file import MAX_STATE_BYTES, read_state_file

SOUND = {
    "active_workflow": {
        "type": "fix",
        "phases": list(WORKFLOWS["fix"]),
        "current_phase": "01-requirements",
        "current_phase_index": 0,
    }
}
BLOCK = next_steps(SOUND)


def hook(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The hook as agents call it; a hang would fail the test."""
    command = [sys.executable, "-m", "phasegate", "next", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=30)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".isdlc").mkdir()
    (tmp_path / ".isdlc/state.json").write_text(json.dumps(SOUND))
    return tmp_path


def test_the_control_speaks(project: Path) -> None:
    said = hook(project)
    assert (said.returncode, said.stdout, said.stderr) == (0, BLOCK, "")


@pytest.mark.demand("N8.c", "N8.l")
def test_a_file_cut_at_any_byte_is_met_with_silence(project: Path) -> None:
    path = project / ".isdlc/state.json"
    whole = json.dumps(SOUND).encode()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert next_steps(read_state_file(str(path))) is None, length
    path.write_bytes(whole)
    assert next_steps(read_state_file(str(path))) == BLOCK


def _as_symlink(path: Path) -> None:
    (path.parent / "real.json").write_text(json.dumps(SOUND))
    path.unlink()
    path.symlink_to("real.json")


def _as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _as_huge(path: Path) -> None:
    os.truncate(path, MAX_STATE_BYTES + 1)


BAD_FILES = {
    "empty": lambda path: path.write_bytes(b""),
    "NUL-filled": lambda path: path.write_bytes(b"\0" * 4096),
    "no JSON": lambda path: path.write_bytes(b"active_workflow: yes"),
    "two values": lambda path: path.write_text(json.dumps(SOUND) + json.dumps(SOUND)),
    "byte order mark": lambda path: path.write_bytes(b"\xef\xbb\xbf" + json.dumps(SOUND).encode()),
    "UTF-16": lambda path: path.write_bytes(json.dumps(SOUND).encode("utf-16")),
    "invalid UTF-8": lambda path: path.write_bytes(b'{"active_workflow": "\xff"}'),
    "deeply nested": lambda path: path.write_bytes(b"[" * 200_000),
    "a number of 10 000 digits": lambda path: path.write_bytes(b"9" * 10_000),
    "not a number": lambda path: path.write_bytes(b'{"active_workflow": NaN}'),
    "wrong shape": lambda path: path.write_bytes(b'["active_workflow"]'),
    "a link": _as_symlink,
    "a pipe": _as_pipe,
    "a folder": _as_folder,
    "larger than any state": _as_huge,
    "gone": lambda path: path.unlink(),
    "unreadable": lambda path: (
        path.chmod(0) if os.geteuid() else path.unlink()
    ),  # root reads anything
}


@pytest.mark.demand("N8.c", "N8.d", "N8.e", "N8.k", "N8.l")
@pytest.mark.parametrize("damage", BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_never_crashes_the_hook(project: Path, damage: object) -> None:
    damage(project / ".isdlc/state.json")  # type: ignore[operator]
    for arguments, lines in (
        ([], 0),
        (["--phase", "01-requirements"], 5),
        (["--event=workflow-completed"], 6),
    ):
        said = hook(project, *arguments)
        assert (said.returncode, said.stderr) == (0, "")
        assert len(said.stdout.splitlines()) == lines


@pytest.mark.demand("N8.a")
def test_the_hook_leaves_everything_as_it_is(project: Path) -> None:
    def everything() -> dict[str, tuple[int, bytes]]:
        files = [path for path in project.rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = everything()
    hook(project)
    hook(project, "--phase", "01-requirements")
    assert everything() == before


def test_the_hook_works_from_any_folder_of_the_repository(project: Path) -> None:
    deep = project / "src/deep/er"
    deep.mkdir(parents=True)
    assert hook(deep).stdout == BLOCK


def test_the_hook_works_from_a_packages_checkout(project: Path) -> None:
    checkout = project / ".worktrees/001-login-WP01"
    (checkout / ".git").mkdir(parents=True)
    assert hook(checkout).stdout == BLOCK


def test_the_hook_does_not_look_beyond_the_repository(project: Path) -> None:
    inner = project / "vendored"
    (inner / ".git").mkdir(parents=True)
    assert hook(inner).stdout == ""


def test_outside_of_a_repository_a_file_further_up_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / ".isdlc").mkdir()
    (tmp_path / ".isdlc/state.json").write_text(
        '{"active_workflow": {"phases": ["01-a"], "current_phase_index": 0}}'
    )
    (tmp_path / "below").mkdir()
    assert hook(tmp_path / "below").stdout == ""
    assert "Complete workflow" in hook(tmp_path).stdout


def test_a_reader_that_goes_away_is_no_error(project: Path) -> None:
    command = f"'{sys.executable}' -m phasegate next"
    script = f"exec 3>&1; {{ {command}; echo $? >&3; }} | true"
    done = subprocess.run(
        ["bash", "-c", script], cwd=project, capture_output=True, text=True, timeout=30
    )
    assert done.stderr == ""


def test_a_folder_that_was_removed_under_the_hook_is_no_error(tmp_path: Path) -> None:
    script = f"mkdir gone && cd gone && rmdir ../gone && '{sys.executable}' -m phasegate next"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout) == (0, "")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
fields = [
    "type",
    "phases",
    "current_phase",
    "current_phase_index",
    "artifact_folder",
    "phase_status",
    "noun",
]


@pytest.mark.demand("N8.l")
@given(
    st.dictionaries(
        st.sampled_from(fields), json_values | st.lists(st.sampled_from(WORKFLOWS["fix"]))
    )
)
def test_any_state_gives_a_whole_block_or_nothing(active: dict[str, object]) -> None:
    for arguments in (
        {},
        {"phase": "01-requirements"},
        {"event": "gate-passed"},
        {"event": "workflow-initialized"},
    ):
        said = next_steps({"active_workflow": active}, **arguments)  # type: ignore[arg-type]
        assert said is None or (
            said.startswith("---\nSUGG") and said.endswith("\n---\n") and said.isascii()
        )


@given(st.binary())
def test_any_bytes_are_read_without_an_exception(raw: bytes) -> None:
    path = Path(os.environ["HOME"]) / f"state-{os.getpid()}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    next_steps(read_state_file(str(path)))
