"""Where things stand, as people look at it.

The workflow with its phases and gates, packages in columns, blockers.

`status` is asked a hundred times a day: nothing but the standard library is imported, and little of
that.
"""

from __future__ import annotations

from typing import NamedTuple

from phasegate.core.display.next_steps import next_steps
from phasegate.core.machine.wait_reasons import WAITING_AT_FORGE_SUFFIX
from phasegate.core.text.visible import escape_unprintable
from phasegate.core.workflow.workflows import UNMERGED_WORKFLOWS, gate_name, resolve_display_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Protocol

    Style = Callable[[str, str], str]

    class PackageRow(Protocol):
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
        @property
        def standing(self) -> str: ...


STATE_COLUMNS = ("PLANNED", "DOING", "FOR_REVIEW", "DONE", "BLOCKED")
# Below this, five columns show too little of each title
MIN_COLUMNS_WIDTH = 76
ENDED_STAGE_NAMES = ("completed", "cancelled")
# These hold a feature for a moment, as their lock says. All else that holds it works on it.
SHORT_ORDERS = (
    "start",
    "advance",
    "retry",
    "resolve",
    "back",
    "escalate",
    "cancel",
    "complete",
    "note",
)
# On record: what a person is told
NOTICE_KIND = "notice.given"
# How the notice begins that tells why nothing was done after it
RUN_FAILED_PREFIX = "the run has failed: "
# How the notice about them begins
HIDDEN_CHARACTERS_PREFIX = "characters that nobody sees"
FLEET_OPTION = " --fleet"
# The worker of a feature that waits for one at its fleet's server
NO_WORKER_YET = "(none yet)"
_GAP = "  "
# What a person does next, by the stage of the workflow.
_NEXT_VERBS = {
    "working": ("run",),
    "gate-failed": ("run", "retry"),
    "gate-passed": ("run", "advance"),
    "blocked": ('resolve "how"', "run"),
}


class Worker(NamedTuple):
    """The process that works on a feature or a package at this moment."""

    pid: int
    command: str
    since: str


class PhaseCard(NamedTuple):
    """A phase of the workflow, and how its gate was judged last.

    Passed, failed, blocked, or not yet.
    """

    key: str
    name: str
    gate: str
    # Completed, in_progress, pending
    status: str
    outcome: str = ""


class FeatureCard(NamedTuple):
    """A feature as it stands.

    One without a workflow (its plan was loaded by hand) has no phases.
    """

    feature: str
    type: str = ""
    description: str = ""
    # Empty where another tool wrote the state
    standing: str = ""
    worker: Worker | None = None
    stage: str = ""
    round: int = 0
    reason: str = ""
    remediation: str = ""
    phase: str = ""
    phases: tuple[PhaseCard, ...] = ()
    # The branch that the work goes to
    base: str = ""
    # The commit of the base that holds the work
    merged: str = ""

    @property
    def is_active(self) -> bool:
        return self.stage not in ENDED_STAGE_NAMES


def derive_standing(stage: str, *, is_last_phase: bool, has_worker: bool) -> str:
    """Whether a feature is working, waiting for a person, stopped or ended.

    `is_held`: a process works on it.

    Stopped means that nobody works on it and that `run` would go on, whatever ended the last one.
    """
    if stage in ENDED_STAGE_NAMES:
        return "ended"
    if has_worker:
        return "working"
    if stage == "blocked" or (stage == "gate-passed" and is_last_phase):
        return "waiting"

    return "stopped"


def derive_package_standing(state: str, *, has_worker: bool) -> str:
    """The same of a package, which may also be planned: nobody has begun it.

    `is_held`: by it or its feature's run.
    """
    if state in ("DOING", "FOR_REVIEW"):
        if has_worker:
            return "working"
        return "stopped"

    return {"PLANNED": "planned", "DONE": "ended"}.get(state, "waiting")


def list_waiting_orders(stage: str, position: int, merged: str = "") -> tuple[str, ...]:
    """The commands that are allowed while a feature waits for a person, told from its row.

    See `allowed_orders`.
    """
    back = ("back",) if position and not merged else ()
    orders = ("resolve", *back) if stage == "blocked" else ("run", *back, "complete", "escalate")
    if merged:
        return orders

    return (*orders, "cancel")


def build_phase_cards(
    keys: Sequence[str], position: int, stage: str, outcomes: Mapping[str, str]
) -> tuple[PhaseCard, ...]:
    """The phases of a workflow at a position; `outcomes` are the last ones of the gates, by phase."""
    done = position + (stage in ("gate-passed", "completed"))
    statuses = [
        "completed" if at < done else "in_progress" if at == position else "pending"
        for at in range(len(keys))
    ]
    return tuple(
        PhaseCard(
            key=key,
            name=resolve_display_name(key),
            gate=gate_name(key),
            status=status,
            outcome=outcomes.get(key, ""),
        )
        for key, status in zip(keys, statuses, strict=True)
    )


def read_workflow_card(state: object) -> FeatureCard | None:
    """The active workflow of a state file, whoever wrote it.

    None if there is none, or it is malformed.
    """
    if next_steps(state) is None:
        return None

    assert isinstance(state, dict)
    active = state["active_workflow"]
    keys = active["phases"]
    index = active["current_phase_index"]
    told = active.get("phase_status")
    is_passed = isinstance(told, dict) and told.get(keys[index]) == "completed"
    type_, feature, description = (
        _visible_text(active.get(name)) for name in ("type", "artifact_folder", "description")
    )
    stage = "gate-passed" if is_passed else "working"
    phases = build_phase_cards(keys, index, stage, {})

    return FeatureCard(
        feature=feature,
        type=type_,
        description=description,
        stage=stage,
        round=1,
        phase=keys[index],
        phases=phases,
    )


def _visible_text(value: object) -> str:
    if isinstance(value, str):
        return escape_unprintable(value).strip()
    return ""


def merge_verb(command_suffix: str) -> str:
    """How a feature is merged behind its last gate: a fleet's workers do it themselves."""
    if command_suffix.endswith(FLEET_OPTION):
        return "run --merge"
    return "complete"


def format_next_commands(
    stage: str, *, is_last_phase: bool, is_published: bool = False, command_suffix: str = ""
) -> str:
    """What a person types next.

    `naming`: ` --feature SLUG`, where another feature is in work too, and ` --fleet`.
    """
    verbs = _NEXT_VERBS.get(stage, ())

    if stage == "gate-passed" and is_last_phase:
        if is_published:
            verbs = ("run", "sync")
        else:
            verbs = (merge_verb(command_suffix),)

    return (", and " if stage == "blocked" else ", or ").join(
        f"phasegate {verb}{command_suffix}" for verb in verbs
    )


def workflow_lines(
    workflow: FeatureCard, style: Style, command_suffix: str = "", *, use_symbols: bool = False
) -> Iterator[str]:
    """The workflow: what it is about, where it stands, each phase with its gate, and what comes
    next.
    """
    if workflow.feature:
        where = f" {workflow.feature}"
    else:
        where = ""

    if workflow.round > 1:
        again = f", round {workflow.round}"
    else:
        again = ""

    if workflow.is_active:
        at = resolve_display_name(workflow.phase)
    else:
        at = workflow.stage

    yield style(f"{workflow.type or 'workflow'}{where}: {at}{again}", "bold")
    if workflow.description:
        yield f"  {escape_unprintable(workflow.description)}"

    width = max(len(phase.name) for phase in workflow.phases)
    for phase in workflow.phases:
        if use_symbols:
            mark = _phase_symbol(phase, workflow, style)
        else:
            mark = f"[{_PHASE_MARKS[phase.status]}]"

        yield f"  {mark} {phase.name:<{width}}  {_gate_status(phase, workflow, style)}".rstrip()

    if ended := describe_merge(workflow.type, workflow.stage, workflow.base, workflow.merged):
        yield f"  {ended}"

    yield from _next_lines(workflow, command_suffix)


_PHASE_MARKS = {"completed": "x", "in_progress": ">", "pending": " "}
_PHASE_SYMBOLS = {
    "completed": ("●", "green"),
    "in_progress": ("◉", "yellow"),
    "pending": ("○", "plain"),
}


def _phase_symbol(phase: PhaseCard, workflow: FeatureCard, style: Style) -> str:
    """A phase on the rail."""
    dot, colour = _PHASE_SYMBOLS[phase.status]
    stands_still = phase.status == "in_progress" and workflow.stage in ("blocked", "gate-failed")
    return style(dot, "red" if stands_still else colour)


def graph_line(waves: Sequence[Sequence[PackageRow]], width: int, style: Style) -> str:
    """Which packages come after which, from left to right.

    Nothing where that does not fit, or nobody waits.
    """
    words = [[f"{_STATE_SYMBOLS.get(row.state, '○')} {row.id}" for row in wave] for wave in waves]
    if len(waves) < 2 or display_width(" ─▶ ".join("  ".join(wave) for wave in words)) > width:
        return ""

    coloured = (
        "  ".join(
            style(word, _STATE_COLOURS.get(row.state, "plain"))
            for word, row in zip(found, wave, strict=True)
        )
        for found, wave in zip(words, waves, strict=True)
    )
    return " ─▶ ".join(coloured)


_STATE_SYMBOLS = {"DONE": "●", "DOING": "◉", "FOR_REVIEW": "◉", "BLOCKED": "✗"}


def describe_merge(type_: str, stage: str, base: str, merged: str) -> str:
    """Where the work of a workflow is.

    Merged or not, into what, as which commit; nothing while it is in work.
    """
    if merged:
        return f"merged into {escape_unprintable(base)} at {escape_unprintable(merged)[:12]}"
    if stage == "cancelled":
        return "not merged: it was cancelled"
    if stage != "completed":
        return ""
    # Early records do not say which commit; what is completed and merges is merged.
    if type_ in UNMERGED_WORKFLOWS:
        return f"not merged: a {type_} changes nothing"

    return f"merged into {escape_unprintable(base)}"


def _gate_status(phase: PhaseCard, workflow: FeatureCard, style: Style) -> str:
    if phase.status == "completed":
        return style(f"{phase.gate} PASSED", "green")
    if phase.status == "pending" or not workflow.is_active:
        return ""
    if workflow.stage == "blocked":
        return style("BLOCKED", "red")
    if workflow.stage == "gate-failed":
        return style(f"{phase.gate} FAILED", "red")

    return style(
        "stopped: no process works on it" if workflow.standing == "stopped" else "in progress",
        "yellow",
    )


def _next_lines(workflow: FeatureCard, command_suffix: str) -> Iterator[str]:
    if workflow.reason and (
        workflow.stage != "working" or workflow.reason.startswith(RUN_FAILED_PREFIX)
    ):
        yield f"  why: {escape_unprintable(workflow.reason)}"

    if workflow.remediation and workflow.is_active:
        yield f"  what to do: {escape_unprintable(workflow.remediation)}"
    if workflow.worker is not None:
        yield f"  running: {worker_line(workflow.worker)}"
        return

    is_last = workflow.phase == workflow.phases[-1].key
    is_published = workflow.reason.endswith(WAITING_AT_FORGE_SUFFIX)

    if then := format_next_commands(
        workflow.stage,
        is_last_phase=is_last,
        is_published=is_published,
        command_suffix=command_suffix,
    ):
        yield f"  then: {then}"


def worker_line(worker: Worker) -> str:
    """Who works on it, in words."""
    if worker.command == NO_WORKER_YET:
        return f"it waits for a worker since {worker.since}"
    # On another machine
    if not worker.pid:
        return escape_unprintable(f"worker {worker.command}, last sign {worker.since}")
    return escape_unprintable(f"process {worker.pid} ({worker.command}) since {worker.since}")


def count_by_state(rows: Sequence[PackageRow]) -> dict[str, int]:
    """How many packages are in each state; a state that nobody knows has a column of its own."""
    found = dict.fromkeys(STATE_COLUMNS, 0)
    for row in rows:
        found[row.state] = found.get(row.state, 0) + 1
    return found


def board_lines(
    rows: Sequence[PackageRow], width: int, max_rows: int, style: Style
) -> Iterator[str]:
    """The packages in columns by state, at most so many in each.

    One below the other where the terminal is narrow.
    """
    totals = count_by_state(rows)
    columns = {state: [row for row in rows if row.state == state] for state in totals}
    shown = {state: found[:max_rows] for state, found in columns.items()}
    if width < MIN_COLUMNS_WIDTH:
        yield from _stacked_lines(shown, totals, width, style)
    else:
        yield from _column_lines(shown, totals, width, style)

    hidden = sum(totals.values()) - sum(len(found) for found in shown.values())
    if hidden:
        yield f"and {hidden} more: phasegate status --all"


def _heading(state: str, total: int) -> str:
    return f"{state} {total}"


def _label(row: PackageRow) -> str:
    notes = ", ".join(
        (
            *([f"round {row.round}"] if row.round > 1 else ()),
            *(["stopped"] if _is_stopped(row) else ()),
        )
    )
    return f"{row.id} {row.title}{f' ({notes})' if notes else ''}"


def _is_stopped(row: PackageRow) -> bool:
    return row.standing == "stopped"


def _stacked_lines(
    shown: Mapping[str, Sequence[PackageRow]], totals: Mapping[str, int], width: int, style: Style
) -> Iterator[str]:
    for state, found in shown.items():
        if found:
            yield style(_heading(state, totals[state]), _STATE_COLOURS.get(state, "plain"))
            yield from (
                f"  {cut_to_width(_label(row), max(width - 2, 8))}".rstrip() for row in found
            )


def _column_lines(
    shown: Mapping[str, Sequence[PackageRow]], totals: Mapping[str, int], width: int, style: Style
) -> Iterator[str]:
    """Columns that hold something share the room that the headings of empty ones leave."""
    headings = {state: _heading(state, total) for state, total in totals.items()}
    empty = sum(len(headings[state]) for state, found in shown.items() if not found)
    room = width - empty - len(_GAP) * (len(headings) - 1)
    share = room // max(sum(1 for found in shown.values() if found), 1)
    widths = {
        state: max(share, len(headings[state])) if shown[state] else len(headings[state])
        for state in shown
    }
    head = (
        style(pad_to_width(headings[state], widths[state]), _STATE_COLOURS.get(state, "plain"))
        for state in shown
    )
    yield _GAP.join(head).rstrip()
    columns = [
        [pad_to_width(_label(row), widths[state]) for row in found]
        for state, found in shown.items()
    ]
    blanks = [" " * widths[state] for state in shown]

    for at in range(max(map(len, columns), default=0)):
        line = (
            column[at] if at < len(column) else blank
            for column, blank in zip(columns, blanks, strict=True)
        )
        yield _GAP.join(line).rstrip()


_STATE_COLOURS = {"DOING": "yellow", "FOR_REVIEW": "cyan", "DONE": "green", "BLOCKED": "red"}


def blocker_lines(
    rows: Sequence[PackageRow],
    max_rows: int,
    in_workflow: bool,
    style: Style,
    command_suffix: str = "",
) -> Iterator[str]:
    """What stands still, why, and what to do.

    In a workflow, it is the workflow that is gone on with.
    """
    blocked = [row for row in rows if row.state == "BLOCKED"]

    for row in blocked[:max_rows]:
        yield style(f"{row.id} is blocked: ", "red") + (row.reason or "no reason is recorded")
        yield f"  what to do: {row.remediation or f'phasegate status {row.id}{command_suffix}, then fix the cause'}"
        if not in_workflow:
            yield f"  then: phasegate dispatch {row.id}{command_suffix}"


def pad_to_width(text: str, width: int) -> str:
    """A text in a cell of a column."""
    short = cut_to_width(text, width)
    return short + " " * (width - display_width(short))


def cut_to_width(text: str, width: int) -> str:
    """A text that fits into so many cells of a terminal."""
    if text.isascii():
        if len(text) <= width:
            return text
        return f"{text[: width - 2]}.."

    if display_width(text) <= width:
        return text

    kept = []
    used = 0

    for letter in text:
        used += display_width(letter)
        if used > width - 2:
            break

        kept.append(letter)

    return "".join(kept) + ".."


def display_width(text: str) -> int:
    """How many cells of a terminal a text takes.

    Wide letters take two, marks that sit on others none.
    """
    if text.isascii():
        return len(text)

    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text
    )
