"""The command line with which Phasegate's own reporter runs beside the project's."""

from __future__ import annotations

from pathlib import Path

from phasegate.checks.test_report import add_reporter
from phasegate.core.detection.model import describe_command


def test_users_are_shown_the_command_of_the_project_not_the_options_of_the_reporter() -> None:
    line = "node --test tests/"
    setup = add_reporter(line, Path("/r/run-1.jsonl"), Path("/r/programs"), "")
    assert setup is not None
    assert "--test-reporter=/r/programs/phasegate_node.mjs" in setup.line
    assert setup.line.endswith(f"; {line}")
    assert describe_command(setup.line) == line
