"""The progress of a run: gates and blocks on stdout, everything else on stderr, the last block last."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import pytest

from phasegate.core.display.status import NOTICE_KIND
from phasegate.core.machine.feature_state import Feature
from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow.phase_transitions import Workflow
from phasegate.engine.views.follow import StreamEvent
from phasegate.interfaces.cli.progress import (
    ProgressPrinter,
    print_warnings_with,
    render_progress,
)
from phasegate.storage.rows import JobRow

Captured = pytest.CaptureFixture[str]


def event(line: str = "", block: str = "", kind: str = "workflow.happened") -> StreamEvent:
    return StreamEvent(
        position=1,
        feature="001-a",
        seq=1,
        ts="",
        kind=kind,
        package="",
        phase="",
        event=None,
        line=line,
        block=block,
    )


def test_gates_and_blocks_go_to_stdout_and_other_lines_to_stderr(capsys: Captured) -> None:
    printer = ProgressPrinter()
    for one in (event("WP01 started"), event("GATE-01 PASSED", "block 1\n"), event("WP02 started")):
        printer(one)
    out, err = capsys.readouterr()
    assert out == "GATE-01 PASSED\nblock 1\n"
    assert err == "WP01 started\nWP02 started\n"
    assert printer.gates_printed == 1


def test_a_notice_does_not_make_the_block_before_it_an_old_one(capsys: Captured) -> None:
    printer = ProgressPrinter()
    printer(event("GATE-01 PASSED", "block\n"))
    printer(event("note", kind=NOTICE_KIND))
    assert capsys.readouterr().out == "GATE-01 PASSED\n"
    printer.finish(("the end",))
    assert capsys.readouterr() == ("block\n", "the end\n")


def test_only_the_last_of_two_blocks_without_a_line_between_them_is_printed(
    capsys: Captured,
) -> None:
    printer = ProgressPrinter()
    printer.hold_block("first\n")
    printer(event(block="second\n"))
    printer.finish()
    printer.finish()
    assert capsys.readouterr().out == "second\n"


def test_a_quiet_run_prints_no_event_and_no_warning(capsys: Captured) -> None:
    printer = ProgressPrinter(quiet=True)
    printer(event("GATE-01 PASSED", "block\n"))
    printer.print_warning("careful")
    printer.finish()
    assert capsys.readouterr() == ("", "")


def test_a_line_cannot_control_the_terminal(capsys: Captured) -> None:
    ProgressPrinter()(event("a\x1b[2Jb"))
    assert capsys.readouterr().err == "a\\x1b[2Jb\n"


def test_a_warning_is_printed_once_and_only_inside_the_block(capsys: Captured) -> None:
    logger = logging.getLogger("phasegate.test")
    with print_warnings_with(ProgressPrinter()):
        for text in ("careful", "careful", "slow"):
            logger.warning(text)
        logger.info("detail")
    logging.getLogger("phasegate").addHandler(silent := logging.NullHandler())
    logger.warning("after")
    logging.getLogger("phasegate").removeHandler(silent)
    assert capsys.readouterr().err == "note: careful\nnote: slow\n"


def test_a_package_whose_reviewer_runs_is_counted_as_in_review() -> None:
    now = datetime.now(UTC)
    feature = Feature(
        workflow=Workflow(feature="001-a", type="quick", phases=("06-implementation",)),
        plan=(),
        base="main",
        packages={"WP01": PackageState.DOING, "WP02": PackageState.DOING},
    )
    jobs = [
        JobRow("001-a", name, name, role, 1, "claude", now.isoformat())
        for name, role in (("WP01", "review"), ("WP02", "implement"))
    ]
    assert "  packages: DOING 1  FOR_REVIEW 1" in [*render_progress(feature, jobs, {}, now)]
