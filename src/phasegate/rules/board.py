"""Where things stand, as people look at it: the workflow with its phases and gates, packages in columns, blockers.

`status` is asked a hundred times a day: nothing but the standard library is imported, and little of that.
"""

from __future__ import annotations

from phasegate.rules.light import Light
from phasegate.rules.next_steps import next_steps
from phasegate.rules.visible_text import visible
from phasegate.rules.workflow import gate_name, resolve_display_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Protocol

    Style = Callable[[str, str], str]

    class Row(Protocol):
        """What the board needs to know of a package."""

        @property
        def id(self) -> str: ...
        @property
        def title(self) -> str: ...
        @property
        def state(self) -> str: ...
        @property
        def round(self) -> int: ...
        @property
        def reason(self) -> str: ...
        @property
        def remediation(self) -> str: ...


COLUMNS = ("PLANNED", "DOING", "FOR_REVIEW", "DONE", "BLOCKED")
NARROW = 76  # below this, five columns show too little of each title
_GAP = "  "


class Phase(Light):
    """A phase of the workflow and its gate."""

    key: str
    name: str
    gate: str
    status: str  # completed, in_progress, pending


class Workflow(Light):
    """The active workflow, as far as the state file tells."""

    type: str
    feature: str
    description: str
    phase: str
    phases: tuple[Phase, ...]


def workflow_of(state: object) -> Workflow | None:
    """The active workflow; None if there is none, or the state is malformed (as for `next`)."""
    if next_steps(state) is None:
        return None
    assert isinstance(state, dict)
    active = state["active_workflow"]
    keys, index = active["phases"], active["current_phase_index"]
    told = active.get("phase_status")
    phases = tuple(_phase(key, position, index, told) for position, key in enumerate(keys))
    type_, feature, description = (_text(active.get(name)) for name in ("type", "artifact_folder", "description"))
    return Workflow(type_, feature, description, keys[index], phases)


def _phase(key: str, position: int, index: int, told: object) -> Phase:
    status = told.get(key) if isinstance(told, dict) else None
    if status not in ("completed", "in_progress", "pending"):
        status = "completed" if position < index else "in_progress" if position == index else "pending"
    return Phase(key, resolve_display_name(key), gate_name(key), str(status))


def _text(value: object) -> str:
    return visible(value).strip() if isinstance(value, str) else ""


def workflow_lines(workflow: Workflow, style: Style) -> Iterator[str]:
    """The workflow: what it is about, where it stands, and each phase with its gate."""
    where = f" of {workflow.feature}" if workflow.feature else ""
    yield style(f"{workflow.type or 'workflow'}{where}: {resolve_display_name(workflow.phase)}", "bold")
    if workflow.description:
        yield f"  {workflow.description}"
    width = max(len(phase.name) for phase in workflow.phases)
    for phase in workflow.phases:
        said = {"completed": f"{phase.gate} PASSED", "in_progress": "in progress", "pending": ""}[phase.status]
        mark = {"completed": "x", "in_progress": ">", "pending": " "}[phase.status]
        colour = {"completed": "green", "in_progress": "yellow", "pending": "plain"}[phase.status]
        yield f"  [{mark}] {phase.name:<{width}}  {style(said, colour)}".rstrip()


def counts(rows: Sequence[Row]) -> dict[str, int]:
    """How many packages are in each state; a state that nobody knows has a column of its own."""
    found = dict.fromkeys(COLUMNS, 0)
    for row in rows:
        found[row.state] = found.get(row.state, 0) + 1
    return found


def board_lines(rows: Sequence[Row], width: int, most: int, style: Style) -> Iterator[str]:
    """The packages in columns by state, at most so many in each; one below the other where the terminal is narrow."""
    totals = counts(rows)
    columns = {state: [row for row in rows if row.state == state] for state in totals}
    shown = {state: found[:most] for state, found in columns.items()}
    if width < NARROW:
        yield from _stacked(shown, totals, width, style)
    else:
        yield from _side_by_side(shown, totals, width, style)
    hidden = sum(totals.values()) - sum(len(found) for found in shown.values())
    if hidden:
        yield f"and {hidden} more: phasegate status --all"


def _heading(state: str, total: int) -> str:
    return f"{state} {total}"


def _label(row: Row) -> str:
    again = f" (round {row.round})" if row.round > 1 else ""
    return f"{row.id} {row.title}{again}"


def _stacked(shown: Mapping[str, Sequence[Row]], totals: Mapping[str, int], width: int, style: Style) -> Iterator[str]:
    for state, found in shown.items():
        if found:
            yield style(_heading(state, totals[state]), _COLOURS.get(state, "plain"))
            yield from (f"  {cut(_label(row), max(width - 2, 8))}".rstrip() for row in found)


def _side_by_side(
    shown: Mapping[str, Sequence[Row]], totals: Mapping[str, int], width: int, style: Style
) -> Iterator[str]:
    """Columns that hold something share the room that the headings of empty ones leave."""
    headings = {state: _heading(state, total) for state, total in totals.items()}
    empty = sum(len(headings[state]) for state, found in shown.items() if not found)
    room = width - empty - len(_GAP) * (len(headings) - 1)
    share = room // max(sum(1 for found in shown.values() if found), 1)
    widths = {state: max(share, len(headings[state])) if shown[state] else len(headings[state]) for state in shown}
    head = (style(padded(headings[state], widths[state]), _COLOURS.get(state, "plain")) for state in shown)
    yield _GAP.join(head).rstrip()
    for at in range(max((len(found) for found in shown.values()), default=0)):
        cells = (_label(found[at]) if at < len(found) else "" for found in shown.values())
        yield _GAP.join(padded(cell, widths[state]) for cell, state in zip(cells, shown, strict=True)).rstrip()


_COLOURS = {"DOING": "yellow", "FOR_REVIEW": "cyan", "DONE": "green", "BLOCKED": "red"}


def blocker_lines(rows: Sequence[Row], most: int, in_workflow: bool, style: Style) -> Iterator[str]:
    """What stands still, why, what to do, and the command that tries it again."""
    blocked = [row for row in rows if row.state == "BLOCKED"]
    for row in blocked[:most]:
        yield style(f"{row.id} is blocked: ", "red") + (row.reason or "no reason is recorded")
        yield f"  what to do: {row.remediation or f'phasegate status {row.id}, then mend the cause'}"
        again = 'resolve "how it was mended"' if in_workflow else f"dispatch {row.id}"
        yield f"  then: phasegate {again}"


def padded(text: str, width: int) -> str:
    """A text in a cell of a column."""
    short = cut(text, width)
    return short + " " * (width - cells(short))


def cut(text: str, width: int) -> str:
    """A text that fits into so many cells of a terminal."""
    if text.isascii():
        return text if len(text) <= width else f"{text[: width - 2]}.."
    if cells(text) <= width:
        return text
    kept, used = [], 0
    for letter in text:
        used += cells(letter)
        if used > width - 2:
            break
        kept.append(letter)
    return "".join(kept) + ".."


def cells(text: str) -> int:
    """How many cells of a terminal a text takes: wide letters take two, marks that sit on others none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)
