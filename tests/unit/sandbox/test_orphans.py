"""Processes found again: proved before they are touched (E09)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from phasegate.sandbox import orphans, process_tree

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="not enforceable here: proof of identity needs /proc and pidfd"
)


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """Somebody else's process."""
    with subprocess.Popen(["sleep", "60"], env={"PHASEGATE_JOB": "of-somebody-else"}) as process:
        yield process
        process.kill()


def test_only_processes_with_this_jobs_tag_are_ended(victim: subprocess.Popen[bytes]) -> None:
    with subprocess.Popen(["sleep", "60"], env={"PHASEGATE_JOB": "mine"}) as mine:
        assert orphans.kill_tagged_processes("mine") >= 1
        assert mine.wait() == -9
    assert victim.poll() is None
    assert orphans.kill_tagged_processes("min") == 0  # a part of a tag is no tag
    assert orphans.kill_tagged_processes("of-somebody") == 0
    assert victim.poll() is None


def test_we_do_not_end_ourselves_when_we_are_part_of_a_job() -> None:
    code = "from phasegate.sandbox import orphans; print(orphans.kill_tagged_processes('nested'))"
    said = subprocess.run(
        [sys.executable, "-c", code],
        env={"PHASEGATE_JOB": "nested"},
        capture_output=True,
        check=True,
    )
    assert said.stdout == b"0\n"


def test_signals_go_to_descendants_only(victim: subprocess.Popen[bytes]) -> None:
    code = """if True:
        import os, subprocess, sys
        from phasegate.sandbox import process_tree
        child = subprocess.Popen(["sh", "-c", "sleep 60 & echo started; wait"], stdout=subprocess.PIPE)
        child.stdout.readline()
        process_tree.signal_descendants(os.getpid(), 15)
        print(child.wait())
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert said.stdout in (
        b"-15\n",
        b"0\n",
    )  # 0: the shell saw its child end before its own signal came
    assert victim.poll() is None


def test_descendants_are_found_at_every_depth() -> None:
    parent_of = {2: 1, 3: 2, 4: 3, 5: 1, 6: 9, 9: 6}
    assert process_tree.find_descendants(2, parent_of) == [3, 4]
    assert sorted(process_tree.find_descendants(1, parent_of)) == [2, 3, 4, 5]
    assert process_tree.find_descendants(7, parent_of) == []
