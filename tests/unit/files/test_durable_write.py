"""What an agent wrote and did not sync."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from phasegate.files.durable_write import sync_file_system
from support.power_loss import Disk, calls_of, can_trace, trace

# As an agent does, and then, where it is asked for, as we do behind it.
WRITES = """
import sys
from pathlib import Path
Path(sys.argv[1], "made").mkdir()
Path(sys.argv[1], "made/work.txt").write_text("work")
if sys.argv[2:]:
    from phasegate.files.durable_write import sync_file_system
    sync_file_system(Path(sys.argv[1]))
"""


@pytest.mark.skipif(not can_trace(), reason="needs strace, and the right to trace")
@pytest.mark.parametrize("synced", [True, False])
def test_what_an_agent_wrote_outlives_a_power_failure_once_it_was_synced(
    tmp_path: Path, synced: bool
) -> None:
    top, left = tmp_path / "top", tmp_path / "left"
    top.mkdir()
    disk = Disk(top)
    command = [sys.executable, "-c", WRITES, str(top), *["synced"] * synced]
    assert trace(command, tmp_path / "log") == 0
    for call in calls_of(tmp_path / "log"):
        disk.play(call)
    disk.leave(left)
    assert (left / "made/work.txt").exists() == synced
    assert not synced or (left / "made/work.txt").read_text() == "work"


def test_a_folder_that_an_agent_removed_holds_nothing_to_be_synced(tmp_path: Path) -> None:
    sync_file_system(tmp_path / "gone")
    (tmp_path / "link").symlink_to(tmp_path)
    sync_file_system(tmp_path / "link")
