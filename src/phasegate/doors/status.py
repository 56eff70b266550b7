"""`phasegate status`: where things stand. Asked all day: it reads rows and one file, and loads little else.

The plain question is answered before the command line is loaded, which would cost more than the answer.
"""

from __future__ import annotations

import os
import sys

from phasegate.doors.hook import write_out
from phasegate.errors import ConfigError
from phasegate.record.location import locate
from phasegate.record.reader import Reader, read_store
from phasegate.record.state_file import find_state, read_state
from phasegate.rules.board import (
    ENDED,
    Workflow,
    blocker_lines,
    board_lines,
    counts,
    phases_of,
    whereabouts,
    workflow_lines,
    workflow_of,
)
from phasegate.rules.spending import Spent, in_words, spent_on
from phasegate.rules.visible_text import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from phasegate.record.rows import Gate, Job, Package
    from phasegate.record.rows import Workflow as WorkflowRow
    from phasegate.rules.board import Style

_MOST_SHOWN = 15
_MOST_BLOCKERS = 10
_COLOURS = {"red": 31, "green": 32, "yellow": 33, "cyan": 36, "bold": 1}
_IDLE = 'no workflow is active; begin one: phasegate run feature "..."'


def answer(arguments: list[str]) -> int | None:
    """Answer the plain question; None when the command line must look at the arguments, or say what is wrong."""
    if arguments not in ([], ["--all"], ["--json"]):
        return None
    try:
        text = overview(os.getcwd(), None, everything="--all" in arguments, as_json="--json" in arguments)
    except Exception:
        return None
    return write_out(text)


def overview(folder: str, feature: str | None, *, everything: bool, as_json: bool) -> str:
    """The workflow, its phases and gates, the packages on a board, and what is blocked."""
    reader = _reader(folder)
    rows = reader.workflows() if reader else []
    ended = [row for row in rows if row.stage in ENDED]
    workflow = _workflow(reader, rows, folder, feature)
    boards = _boards(reader, feature or (workflow.feature if workflow else ""))
    if feature and not workflow and feature not in boards:
        known = ", ".join(reader.features()) if reader else ""
        raise ConfigError(f"nothing is recorded of feature {feature}", f"known are: {known or 'none yet'}")
    spent = _spent(reader, workflow.feature if workflow else next(iter(boards), None))
    if as_json:
        used = {name: one._asdict() for name, one in spent.items()}
        return _json({**_as_data(workflow, boards), "ended": [*map(_ended_data, ended)], "spent": used})
    lines = _lines(workflow, ended, boards, everything)
    return "".join(f"{line}\n" for line in (*lines, *_spent_lines(spent)))


def of_package(folder: str, wanted: str, feature: str | None, *, as_json: bool) -> str:
    """A package with its jobs, in each feature that has one of that id."""
    reader = _reader(folder)
    boards = _boards(reader, "")
    rows = [row for slug in boards if feature in (None, slug) for row in boards[slug] if row.id == wanted]
    if reader is None or not rows:
        raise ConfigError(f"there is no package {wanted}", "phasegate package list")
    jobs = {row: [job for job in reader.jobs(row.feature) if job.wp == row.id] for row in rows}
    if as_json:
        return _json([_package_data(row, jobs[row]) for row in rows])
    return "".join(f"{line}\n" for row in rows for line in _package_lines(row, jobs[row]))


def _package_data(row: Package, jobs: list[Job]) -> dict[str, object]:
    return {**row._asdict(), "spent": spent_on(jobs)._asdict(), "jobs": [job._asdict() for job in jobs]}


def _spent(reader: Reader | None, feature: str | None) -> dict[str, Spent]:
    """What the feature that is shown has used, and what all have."""
    if reader is None:
        return {"all": Spent()}
    own = {} if feature is None else {"feature": reader.spent(feature)}
    return {**own, "all": reader.spent()}


def _spent_lines(spent: dict[str, Spent]) -> list[str]:
    """One line, and none where nothing was used; all features are named where there is more than the one shown."""
    everything = spent["all"]
    own = spent.get("feature", everything)
    if not any(everything):
        return []
    others = "" if own == everything else f"; all features: {in_words(everything)}"
    return ["", f"spent: {in_words(own)}{others}"]


def _reader(folder: str) -> Reader | None:
    from pathlib import Path

    return read_store(locate(Path(folder), os.environ))


def _json(data: object) -> str:
    from json import dumps

    return dumps(data) + "\n"


def _workflow(reader: Reader | None, rows: list[WorkflowRow], folder: str, feature: str | None) -> Workflow | None:
    """The workflow that is asked about, else the active one that was moved last; else one that another tool wrote."""
    chosen = [row for row in rows if (row.feature == feature if feature else row.stage not in ENDED)]
    if reader and chosen:
        return _recorded(chosen[0], reader.gates(chosen[0].feature))
    path = find_state(folder)
    found = workflow_of(read_state(path) if path else None)
    # What the record knows to be over is not active, whatever an old view says.
    is_known = found is not None and any(row.feature == found.feature for row in rows)
    return found if found and not is_known and feature in (None, found.feature) else None


def _recorded(row: WorkflowRow, gates: list[Gate]) -> Workflow:
    keys = row.phases.split()
    phases = phases_of(keys, row.position, row.stage, {gate.phase: gate.outcome for gate in gates})
    texts = (row.stage, row.round, row.reason, row.remediation)
    return Workflow(row.feature, row.type, row.description, *texts, keys[row.position], phases, row.base, row.merged)


def _boards(reader: Reader | None, first: str) -> dict[str, list[Package]]:
    """The packages by feature and number, the feature that is asked about first."""
    if reader is None:
        return {}
    slugs = sorted(reader.features(), key=lambda slug: slug != first)
    found = {slug: reader.packages(slug) for slug in slugs}
    return {slug: sorted(rows, key=lambda row: (len(row.id), row.id)) for slug, rows in found.items() if rows}


def _lines(
    workflow: Workflow | None, ended: list[WorkflowRow], boards: dict[str, list[Package]], everything: bool
) -> Iterator[str]:
    style = _style()
    yield from workflow_lines(workflow, style) if workflow else (_IDLE, *map(_ended_line, ended[:1]))
    if not boards:
        yield "no work packages are loaded"
        return
    first, *others = boards
    in_workflow = workflow is not None and workflow.feature == first
    yield from (
        "",
        style(visible(first), "bold"),
        *_board([*map(_plain, boards[first])], everything, in_workflow, style),
    )
    yield from [""] if others else []
    for slug in others:
        found = ", ".join(f"{number} {visible(state)}" for state, number in counts(boards[slug]).items() if number)
        yield f"{visible(slug)}: {found}"


def _board(rows: list[Package], everything: bool, in_workflow: bool, style: Style) -> Iterator[str]:
    """On a terminal as much as a person takes in; into a file or a pipe all of it."""
    is_long = everything or sys.stdout is None or not sys.stdout.isatty()
    yield from board_lines(rows, _width(), len(rows) if is_long else _MOST_SHOWN, style)
    blockers = [*blocker_lines(rows, len(rows) if is_long else _MOST_BLOCKERS, in_workflow, style)]
    yield from ["", *blockers] if blockers else []


def _plain(row: Package) -> Package:
    """A row with nothing in it that a terminal would obey."""
    if f"{row.id}{row.state}{row.title}{row.reason}{row.remediation}".isprintable():
        return row
    plain = row._replace(id=visible(row.id), state=visible(row.state), title=visible(row.title))
    return plain._replace(reason=visible(row.reason), remediation=visible(row.remediation))


def _as_data(workflow: Workflow | None, boards: dict[str, list[Package]]) -> dict[str, object]:
    features = [
        {"feature": slug, "counts": counts(rows), "packages": [row._asdict() for row in rows]}
        for slug, rows in boards.items()
    ]
    blockers = [row._asdict() for rows in boards.values() for row in rows if row.state == "BLOCKED"]
    return {"workflow": _workflow_data(workflow), "features": features, "blockers": blockers}


def _ended_line(row: WorkflowRow) -> str:
    return f"{visible(row.feature)} is {row.stage}: {whereabouts(row.type, row.stage, row.base, row.merged)}"


def _ended_data(row: WorkflowRow) -> dict[str, str]:
    return {"feature": row.feature, "type": row.type, "stage": row.stage, "base": row.base, "merged": row.merged}


def _workflow_data(workflow: Workflow | None) -> dict[str, object] | None:
    return workflow and {**workflow._asdict(), "phases": [phase._asdict() for phase in workflow.phases]}


def _package_lines(row: Package, jobs: list[Job]) -> list[str]:
    row = _plain(row)
    why = f"  {row.reason}" if row.reason else ""
    lines = [f"{row.feature}  {row.id}  {row.state:<10}  {row.title}{why}"]
    if row.remediation:
        lines.append(f"    what to do: {row.remediation}")
    if any(spent := spent_on(jobs)):
        lines.append(f"    spent: {in_words(spent)}")
    for job in jobs:
        how = job.outcome or "running"
        lines.append(visible(f"    {job.started}  round {job.round}  {job.phase:<9}  {job.agent}  {how}"))
    return lines


def _width() -> int:
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 100
    except (OSError, ValueError, AttributeError):
        return 100


def _style() -> Style:
    """Colours on a terminal, unless the person wants none (no-color.org)."""
    if sys.stdout is None or not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return lambda text, _: text
    return lambda text, name: f"\x1b[{_COLOURS[name]}m{text}\x1b[0m" if text and name in _COLOURS else text
