"""Render the status: the workflow with its phases and gates, the package board, the blockers.

`status` is called very often, so start-up time matters: this module imports little of the
standard library.
"""

from __future__ import annotations

from typing import NamedTuple

from phasegate.core.display.next_steps import next_steps
from phasegate.core.machine.wait_reasons import WAITING_AT_FORGE_SUFFIXES
from phasegate.core.text.visible import escape_unprintable
from phasegate.core.workflow.orders import ORDERS
from phasegate.core.workflow.workflow_phases import (
    UNMERGED_WORKFLOWS,
    gate_name,
    resolve_display_name,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Protocol

    Style = Callable[[str, str], str]

    class PackageRow(Protocol):
        """What the board needs to know about a package."""

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
# Below this width, five columns show too little of each title
MIN_COLUMNS_WIDTH = 76
ENDED_STAGE_NAMES = ("completed", "cancelled")
# Orders that hold the lock of a feature only for a moment. Any other holder works on it.
SHORT_ORDERS = ("start", *ORDERS, "note")
# Kind of the journal entries that hold notices to the user
NOTICE_KIND = "notice.given"
# Prefix of the notice that gives the reason why a run failed
RUN_FAILED_PREFIX = "the run has failed: "
# Prefix of the notice about invisible characters
HIDDEN_CHARACTERS_PREFIX = "invisible characters"
# Prefix of the notice that a run has no sandbox
NO_SANDBOX_PREFIX = "no sandbox is available"
# Notices that `status` shows until the feature ends; the last one is in older journals
SHOWN_NOTICE_PREFIXES = (
    HIDDEN_CHARACTERS_PREFIX,
    NO_SANDBOX_PREFIX,
    "characters that nobody sees",
)
FLEET_OPTION = " --fleet"
# Worker name of a feature that waits for a worker at its fleet's server
NO_WORKER_YET = "(none yet)"
# In the remedy of a blocker that `run` checks again by itself
RUN_AFTERWARDS = "&& phasegate run"
# At the end of a remedy of that kind, where no command precedes
THEN_RUN = "then: phasegate run"
# Beginnings of the remedy for an agent that is not signed in, see core/agents/harnesses.py
SIGN_IN_PREFIXES = ("sign in with ", "set OPENAI_API_KEY ", "set COPILOT_GITHUB_TOKEN;")
# In a remedy, before what needs a workflow
OR_INSTEAD = "Or tell the agent what to do instead:"
_GAP = "  "
# Next commands by stage of the workflow
_NEXT_VERBS = {
    "working": ("run",),
    "gate-failed": ("run", "retry"),
    "gate-passed": ("run", "advance"),
    "blocked": ('resolve "how"', "run"),
}


class Worker(NamedTuple):
    """The process that is working on a feature or a package."""

    pid: int
    command: str
    since: str


class PhaseCard(NamedTuple):
    """A phase of the workflow with the last outcome of its gate: passed, failed, blocked or ""."""

    key: str
    name: str
    gate: str
    # completed, in_progress or pending
    status: str
    outcome: str = ""


class FeatureCard(NamedTuple):
    """Current state of a feature.

    A feature without a workflow (its plan was loaded by hand) has no phases.
    """

    feature: str
    type: str = ""
    description: str = ""
    # Empty if another tool wrote the state
    standing: str = ""
    worker: Worker | None = None
    stage: str = ""
    round: int = 0
    reason: str = ""
    remediation: str = ""
    phase: str = ""
    phases: tuple[PhaseCard, ...] = ()
    # The branch into which the feature is merged
    base: str = ""
    # Commit of the base branch that contains the feature
    merged: str = ""
    # When its state changed last
    since: str = ""

    @property
    def is_active(self) -> bool:
        return self.stage not in ENDED_STAGE_NAMES


def derive_standing(stage: str, *, is_last_phase: bool, has_worker: bool) -> str:
    """Return whether a feature is working, waiting for the user, stopped or ended.

    Stopped means that no process works on it and that `run` would continue, whatever ended the last
    run.
    """
    if stage in ENDED_STAGE_NAMES:
        return "ended"
    if has_worker:
        return "working"
    if stage == "blocked" or (stage == "gate-passed" and is_last_phase):
        return "waiting"

    return "stopped"


def derive_package_standing(state: str, *, has_worker: bool) -> str:
    """Return whether a package is planned, working, waiting for the user, stopped or ended.

    `has_worker`: a process works on the package or its feature.
    """
    if state in ("DOING", "FOR_REVIEW"):
        if has_worker:
            return "working"
        return "stopped"

    return {"PLANNED": "planned", "DONE": "ended", "REPLACED": "ended"}.get(state, "waiting")


def list_waiting_orders(stage: str, position: int, merged: str = "") -> tuple[str, ...]:
    """Return the commands that are allowed while a feature waits for the user, from its row alone.

    `event_lines.list_allowed_orders` derives them from the folded state.
    """
    back = ("back",) if position and not merged else ()
    if stage == "blocked":
        orders: tuple[str, ...] = ("resolve", *back)
    else:
        orders = ("run", *back, "complete", "escalate")

    if merged:
        return orders
    return (*orders, "cancel")


def build_phase_cards(
    keys: Sequence[str], position: int, stage: str, outcomes: Mapping[str, str]
) -> tuple[PhaseCard, ...]:
    """Build the cards of all phases; `outcomes` are the last gate outcomes by phase."""
    is_current_done = stage in ("gate-passed", "completed")
    cards = []

    for index, key in enumerate(keys):
        if index < position or (index == position and is_current_done):
            status = "completed"
        elif index == position:
            status = "in_progress"
        else:
            status = "pending"

        cards.append(
            PhaseCard(
                key=key,
                name=resolve_display_name(key),
                gate=gate_name(key),
                status=status,
                outcome=outcomes.get(key, ""),
            )
        )

    return tuple(cards)


def read_workflow_card(state: object) -> FeatureCard | None:
    """Read the active workflow of a state file of any tool; None if missing or malformed."""
    if next_steps(state) is None:
        return None

    assert isinstance(state, dict)
    active = state["active_workflow"]
    keys = active["phases"]
    index = active["current_phase_index"]
    statuses = active.get("phase_status")
    is_passed = isinstance(statuses, dict) and statuses.get(keys[index]) == "completed"
    stage = "gate-passed" if is_passed else "working"

    return FeatureCard(
        feature=_visible_text(active.get("artifact_folder")),
        type=_visible_text(active.get("type")),
        description=_visible_text(active.get("description")),
        stage=stage,
        round=1,
        phase=keys[index],
        phases=build_phase_cards(keys, index, stage, {}),
    )


def _visible_text(value: object) -> str:
    if isinstance(value, str):
        return escape_unprintable(value).strip()
    return ""


def merge_verb(command_suffix: str) -> str:
    """Return the command that merges after the last gate; workers of a fleet merge themselves."""
    if command_suffix.endswith(FLEET_OPTION):
        return "run --merge"
    return "complete"


def needs_only_run(remediation: str) -> bool:
    """Return whether `run` continues after a blocker's remedy, without a decision by `resolve`."""
    if remediation.startswith(SIGN_IN_PREFIXES):
        return True
    return RUN_AFTERWARDS in remediation or remediation.endswith(THEN_RUN)


def format_next_commands(
    stage: str,
    *,
    is_last_phase: bool,
    is_published: bool = False,
    remediation: str = "",
    command_suffix: str = "",
) -> str:
    """Return the commands that the user can type next.

    `command_suffix` is ` --feature SLUG` if several features are active, and ` --fleet` for a
    fleet.
    """
    verbs = _NEXT_VERBS.get(stage, ())

    if stage == "blocked" and needs_only_run(remediation):
        verbs = ("run",)
    elif stage == "gate-passed" and is_last_phase:
        if is_published:
            verbs = ("run", "sync")
        else:
            verbs = (merge_verb(command_suffix),)

    separator = ", and " if stage == "blocked" else ", or "
    return separator.join(f"phasegate {verb}{command_suffix}" for verb in verbs)


def workflow_lines(
    workflow: FeatureCard, style: Style, command_suffix: str = "", *, use_symbols: bool = False
) -> Iterator[str]:
    """Yield the lines of a workflow: title, description, phases with gates, next commands."""
    title = f"{workflow.type or 'workflow'} {workflow.feature}".rstrip()
    if workflow.is_active:
        title += f": {resolve_display_name(workflow.phase)}"
    else:
        title += f": {workflow.stage}"
    if workflow.round > 1:
        title += f", round {workflow.round}"

    yield style(title, "bold")
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
    """Return the coloured symbol of a phase."""
    symbol, colour = _PHASE_SYMBOLS[phase.status]
    if phase.status == "in_progress" and workflow.stage in ("blocked", "gate-failed"):
        colour = "red"
    return style(symbol, colour)


def graph_line(waves: Sequence[Sequence[PackageRow]], width: int, style: Style) -> str:
    """Render the waves of packages from left to right; "" for one wave, or if it does not fit."""
    if len(waves) < 2:
        return ""

    plain_waves = []
    styled_waves = []
    for wave in waves:
        labels = [f"{_STATE_SYMBOLS.get(row.state, '○')} {row.id}" for row in wave]
        plain_waves.append("  ".join(labels))
        styled_waves.append(
            "  ".join(
                style(label, _STATE_COLOURS.get(row.state, "plain"))
                for label, row in zip(labels, wave, strict=True)
            )
        )

    if display_width(" ─▶ ".join(plain_waves)) > width:
        return ""
    return " ─▶ ".join(styled_waves)


_STATE_SYMBOLS = {"DONE": "●", "DOING": "◉", "FOR_REVIEW": "◉", "BLOCKED": "✗"}


def describe_merge(type_: str, stage: str, base: str, merged: str) -> str:
    """Describe whether and where the feature was merged; "" while it is active."""
    if merged:
        return f"merged into {escape_unprintable(base)} at {escape_unprintable(merged)[:12]}"
    if stage == "cancelled":
        return "not merged: cancelled"
    if stage != "completed":
        return ""
    # Early journals do not record the commit; a workflow that is completed and merges is merged.
    if type_ in UNMERGED_WORKFLOWS:
        return f"not merged: a {type_} changes nothing"

    return f"merged into {escape_unprintable(base)}"


def _gate_status(phase: PhaseCard, workflow: FeatureCard, style: Style) -> str:
    """Return the label of a phase's gate."""
    if phase.status == "completed":
        return style(f"{phase.gate} PASSED", "green")
    if phase.status == "pending" or not workflow.is_active:
        return ""
    if workflow.stage == "blocked":
        return style("BLOCKED", "red")
    if workflow.stage == "gate-failed":
        return style(f"{phase.gate} FAILED", "red")

    if workflow.standing == "stopped":
        return style("stopped: no process is working on it", "yellow")
    return style("in progress", "yellow")


def _next_lines(workflow: FeatureCard, command_suffix: str) -> Iterator[str]:
    """Yield why a workflow waits, who works on it, and which command continues it."""
    if workflow.reason and (
        workflow.stage != "working" or workflow.reason.startswith(RUN_FAILED_PREFIX)
    ):
        yield f"  why: {escape_unprintable(workflow.reason)}"

    if workflow.remediation and workflow.is_active:
        yield f"  what to do: {escape_unprintable(workflow.remediation)}"
    if workflow.worker is not None:
        yield f"  running: {worker_line(workflow.worker)}"
        return

    commands = format_next_commands(
        workflow.stage,
        is_last_phase=workflow.phase == workflow.phases[-1].key,
        is_published=workflow.reason.endswith(WAITING_AT_FORGE_SUFFIXES),
        remediation=workflow.remediation,
        command_suffix=command_suffix,
    )
    if commands:
        yield f"  then: {commands}"


def worker_line(worker: Worker) -> str:
    """Describe the worker of a feature or package."""
    if worker.command == NO_WORKER_YET:
        return f"waiting for a worker since {worker.since}"
    # A worker on another machine has no local pid
    if not worker.pid:
        return escape_unprintable(f"worker {worker.command}, last seen {worker.since}")
    since = f"since {worker.since}"
    if worker.since.endswith(" ago"):
        since = f"started {worker.since}"
    return escape_unprintable(f"process {worker.pid} ({worker.command}) {since}")


def count_by_state(rows: Sequence[PackageRow]) -> dict[str, int]:
    """Count the packages in each state; an unknown state gets its own column."""
    counts = dict.fromkeys(STATE_COLUMNS, 0)
    for row in rows:
        counts[row.state] = counts.get(row.state, 0) + 1
    return counts


def board_lines(
    rows: Sequence[PackageRow], width: int, max_rows: int, style: Style
) -> Iterator[str]:
    """Yield the packages in columns by state, at most `max_rows` each; stacked if too narrow."""
    totals = count_by_state(rows)
    columns = {state: [row for row in rows if row.state == state] for state in totals}
    shown = {state: column[:max_rows] for state, column in columns.items()}
    if width < MIN_COLUMNS_WIDTH:
        yield from _stacked_lines(shown, totals, width, style)
    else:
        yield from _column_lines(shown, totals, width, style)

    hidden = sum(totals.values()) - sum(len(column) for column in shown.values())
    if hidden:
        yield f"and {hidden} more: phasegate status --all"


def _heading(state: str, total: int) -> str:
    return f"{state} {total}"


def _label(row: PackageRow) -> str:
    notes = []
    if row.round > 1:
        notes.append(f"round {row.round}")
    if row.standing == "stopped":
        notes.append("stopped")

    label = f"{row.id} {row.title}"
    if notes:
        label += f" ({', '.join(notes)})"
    return label


def _stacked_lines(
    shown: Mapping[str, Sequence[PackageRow]], totals: Mapping[str, int], width: int, style: Style
) -> Iterator[str]:
    for state, column in shown.items():
        if column:
            yield style(_heading(state, totals[state]), _STATE_COLOURS.get(state, "plain"))
            yield from (
                f"  {cut_to_width(_label(row), max(width - 2, 8))}".rstrip() for row in column
            )


def _column_lines(
    shown: Mapping[str, Sequence[PackageRow]], totals: Mapping[str, int], width: int, style: Style
) -> Iterator[str]:
    """Yield the columns side by side; non-empty ones share the width that empty headings leave."""
    headings = {state: _heading(state, total) for state, total in totals.items()}
    widths = {state: len(heading) for state, heading in headings.items()}
    filled = [state for state, column in shown.items() if column]
    empty_width = sum(widths[state] for state in shown if state not in filled)
    free_width = width - empty_width - len(_GAP) * (len(headings) - 1)
    for state in filled:
        widths[state] = max(free_width // len(filled), widths[state])

    head = (
        style(pad_to_width(headings[state], widths[state]), _heading_colour(state, totals[state]))
        for state in shown
    )
    yield _GAP.join(head).rstrip()

    for index in range(max(map(len, shown.values()), default=0)):
        cells = (
            pad_to_width(_label(column[index]) if index < len(column) else "", widths[state])
            for state, column in shown.items()
        )
        yield _GAP.join(cells).rstrip()


def _heading_colour(state: str, total: int) -> str:
    """Return the colour of a column's heading: an empty column has none."""
    return _STATE_COLOURS.get(state, "plain") if total else "plain"


_STATE_COLOURS = {"DOING": "yellow", "FOR_REVIEW": "cyan", "DONE": "green", "BLOCKED": "red"}


def blocker_lines(
    rows: Sequence[PackageRow],
    max_rows: int,
    in_workflow: bool,
    style: Style,
    command_suffix: str = "",
) -> Iterator[str]:
    """Yield each blocked package with its reason and remedy.

    Outside of a workflow, the command that continues the package is added; else the workflow
    continues it.
    """
    blocked = [row for row in rows if row.state == "BLOCKED"]

    for row in blocked[:max_rows]:
        remedy = row.remediation or f"phasegate status {row.id}{command_suffix}, then fix the cause"
        yield style(f"{row.id} is blocked: ", "red") + (row.reason or "no reason is recorded")
        yield f"  what to do: {remedy}"
        if not in_workflow:
            yield f"  then: phasegate dispatch {row.id}{command_suffix}"


def pad_to_width(text: str, width: int) -> str:
    """Cut or pad a text to a number of terminal cells."""
    short = cut_to_width(text, width)
    return short + " " * (width - display_width(short))


def cut_to_width(text: str, width: int) -> str:
    """Shorten a text to a number of terminal cells."""
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
    """Return the number of terminal cells of a text: two for wide letters, none for marks."""
    if text.isascii():
        return len(text)

    from unicodedata import combining, east_asian_width

    width = 0
    for letter in text:
        if combining(letter):
            continue
        width += 2 if east_asian_width(letter) in "WF" else 1

    return width
