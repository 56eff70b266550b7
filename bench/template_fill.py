"""Filling a large template in one pass, against one `str.replace`; linting many, against an empty program."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.measure import Row, command, in_turn
from phasegate.core.prompt.template import TEMPLATE_VARIABLES, fill_template
from phasegate.prompts.templates import list_shipped_templates

REPEATED = 1_000
FILL_GOAL = 3
TEMPLATES = 1_000
LINT_GOAL = 15


def rows() -> list[Row]:
    return [_fill_row(), _lint_row()]


def _fill_row() -> Row:
    template = "".join(one.text for one in list_shipped_templates()) * (REPEATED // 10)
    values = {name: f"value of {name}: {{{{TASKS}}}} " * 20 for name in TEMPLATE_VARIABLES}
    filled = fill_template(template, values, "missing").text
    assert filled.count("value of TASKS") == 20 * template.count("{{TASKS}}")
    ours, replace = in_turn(
        lambda: fill_template(template, values, "missing"),
        lambda: template.replace("{{PROJECT_CONTEXT}}", values["PROJECT_CONTEXT"]),
    )
    return Row(
        f"filling {len(template) >> 20} MB of templates, against one str.replace",
        ours,
        replace,
        FILL_GOAL,
    )


def _lint_row() -> Row:
    shipped = list_shipped_templates()
    with tempfile.TemporaryDirectory() as room:
        for number in range(TEMPLATES):
            one = shipped[number % len(shipped)]
            (Path(room) / f"AGENT{number:04}-{one.name.phase}.md").write_text(
                one.text, encoding="utf-8"
            )
        lint = [str(Path(sys.executable).with_name("phasegate")), "template", "lint", room]
        ours, nothing = in_turn(command(lint), command([sys.executable, "-c", "pass"]))
    return Row(
        f"template lint over {TEMPLATES} files, against python3 -c pass", ours, nothing, LINT_GOAL
    )
