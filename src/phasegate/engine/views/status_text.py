"""Text of `status` and `worktree list`, for users and for agents inside a job.

This module imports little, because `status` is called often.
"""

from __future__ import annotations

from typing import NamedTuple

from phasegate.core.display.status import (
    FLEET_OPTION,
    NO_WORKER_YET,
    blocker_lines,
    board_lines,
    describe_merge,
    graph_line,
    merge_verb,
    needs_only_run,
    pad_to_width,
    worker_line,
    workflow_lines,
)
from phasegate.core.plan.task_status import format_task_statuses, summarize_tasks
from phasegate.core.text.elapsed import describe_age
from phasegate.core.text.visible import escape_unprintable
from phasegate.core.text.wrap import wrap_line
from phasegate.core.workflow.spending import format_spending as spent_in_words
from phasegate.engine.journal.questions import list_answer_commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from phasegate.core.display.status import FeatureCard, Style
    from phasegate.core.workflow.spending import Spending
    from phasegate.engine.views.overview import (
        FleetStatus,
        Overview,
        PackageCard,
        PendingDecision,
        StoreReader,
    )

NO_PACKAGES = "no work packages are loaded"
_MAX_SHOWN = 15
_MAX_BLOCKERS = 10
_STANDING_LABELS = {"working": "running", "stopped": "stopped"}
_DECISION_LABELS = {
    "answer": "asks",
    "resolve": "blocked",
    "dispatch": "blocked",
    "show": "blocked",
    "complete": "its last gate has passed",
}
_NO_WORKFLOW = 'no workflow is active; start one: phasegate run feature "..."'


def _no_style(text: str, _: str) -> str:
    return text


class StatusPage(NamedTuple):
    """Properties of the output; the defaults suit a file or a pipe."""

    width: int = 100
    # Complete; otherwise shortened to fit a terminal
    is_long: bool = True
    style: Style = _no_style
    # Draw the phase rail and the graph: the terminal supports the characters
    is_drawn: bool = False

    @property
    def is_terminal(self) -> bool:
        return self.is_drawn or not self.is_long


def with_dependencies(overview: Overview, reader: StoreReader | None, page: StatusPage) -> Overview:
    """Add each package's dependencies if the graph is drawn; otherwise plans are not read."""
    if not page.is_drawn or reader is None or not overview.features:
        return overview

    from phasegate.engine.views.package import planned_cards

    first, *further = overview.features

    return overview._replace(
        features=(first._replace(packages=planned_cards(reader, first.feature)), *further)
    )


def render_overview(
    overview: Overview,
    page: StatusPage = StatusPage(),  # noqa: B008 - frozen
    *,
    chosen: bool = False,
) -> str:
    """Render the workflow, its phases and gates, the packages and the blockers."""
    others: Sequence[FeatureCard] = ()
    if not chosen:
        others = overview.others if overview.workflow else overview.ended

    overview = _with_relative_times(overview)
    lines: list[str] = []
    if not chosen and page.is_terminal and overview.workflow and overview.others:
        lines += _feature_table(overview, page)
        others = ()
    lines += _overview_lines(overview, others, page)
    if not chosen:
        lines += _waiting_lines(overview)
    lines += _overlap_lines(overview)

    if overview.hidden:
        lines += ["", *map(escape_unprintable, overview.hidden)]
    for one in overview.resting:
        until = _local_time(one.until) if page.is_terminal else one.until
        lines.append(escape_unprintable(f"{one.agent} is rate-limited until {until}"))
    lines += _spent_lines(overview.spent)

    if overview.board:
        path = f"/feature/{overview.workflow.feature}" if overview.workflow else "/"
        lines.append(escape_unprintable(f"board: {overview.board}{path}"))
    if overview.fleet:
        lines += map(escape_unprintable, _fleet_lines(overview.fleet))
    if page.is_terminal:
        numbers = {} if overview.fleet else _unique_numbers(overview)
        lines = [_shorten_options(line, numbers) for line in lines]
        lines = [part for line in lines for part in wrap_line(line, page.width)]

    return "".join(f"{line}\n" for line in lines)


def _unique_numbers(overview: Overview) -> dict[str, str]:
    """Return the number of each feature that no other one has: `--feature` takes a prefix."""
    names = {card.feature for card in (*overview.others, *overview.ended)}
    names.update(one.feature for one in overview.features)
    if overview.workflow:
        names.add(overview.workflow.feature)

    numbers = {}
    for name in names:
        number = name.partition("-")[0]
        if number.isdecimal() and sum(other.startswith(number) for other in names) == 1:
            numbers[name] = number
    return numbers


def _shorten_options(line: str, numbers: dict[str, str]) -> str:
    """Replace the features in the commands of a line by their numbers."""
    before, *rest = line.split(" --feature ")
    for part in rest:
        name, space, after = part.partition(" ")
        before += f" --feature {numbers.get(name, name)}{space}{after}"
    return before


def _with_relative_times(overview: Overview) -> Overview:
    """Return the overview with the age of the running process instead of its start."""
    workflow = overview.workflow
    if workflow is None or workflow.worker is None or not workflow.worker.pid:
        return overview

    worker = workflow.worker._replace(since=_time_ago(workflow.worker.since))
    return overview._replace(workflow=workflow._replace(worker=worker))


def _time_ago(ts: str) -> str:
    """Return `5 min ago` for a recorded time; other texts are returned unchanged."""
    age = _age(ts)
    return f"{age} ago" if age else ts


def _age(ts: str) -> str:
    """Describe how long ago a recorded time is; empty if it is not a time."""
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(ts)
        return describe_age((datetime.now(UTC) - moment).total_seconds())
    except (ValueError, TypeError):
        return ""


def _local_time(ts: str) -> str:
    """Return the time of day of a time in the local zone, with the date if it is not today."""
    from datetime import datetime

    moment = datetime.fromisoformat(ts)
    if moment.date() == datetime.now(moment.tzinfo).date():
        return f"{moment:%H:%M}"
    return f"{moment:%Y-%m-%d %H:%M}"


def _feature_table(overview: Overview, page: StatusPage) -> Iterator[str]:
    """Yield a table of the features that have not ended, those that wait for the user first."""
    assert overview.workflow is not None
    waiting = {one.feature for one in overview.waiting}
    cards = [overview.workflow, *overview.others]
    cards.sort(key=lambda card: card.feature not in waiting)
    room = max(12, min(44, page.width - 46))
    heading = f"{pad_to_width('FEATURE', room)}  {'STATE':<15}  {'PHASE':<5}  {'AGE':<8}  COST"
    yield page.style(heading, "bold")

    limit = len(cards) if page.is_long else _MAX_SHOWN
    for card in cards[:limit]:
        state, colour = {
            "working": ("running", "yellow"),
            "stopped": ("stopped", "plain"),
        }.get(card.standing, (card.standing, "plain"))
        if card.feature in waiting:
            state, colour = "waiting for you", "cyan"
        position = [phase.key for phase in card.phases].index(card.phase) + 1
        cost = overview.costs.get(card.feature, 0.0)
        spent = f"{cost:.2f} USD" if cost else "-"
        yield (
            f"{pad_to_width(escape_unprintable(card.feature), room)}  "
            f"{page.style(f'{state:<15}', colour)}  {f'{position}/{len(card.phases)}':<5}  "
            f"{_age(card.since) or '-':<8}  {spent}"
        )

    if len(cards) > limit:
        yield f"and {len(cards) - limit} more: phasegate status --all"
    if overview.ended:
        yield f"{len(overview.ended)} ended"
    yield ""


def _fleet_lines(fleet: FleetStatus) -> Iterator[str]:
    """Yield the state of a fleet's workers: known facts, their age, and unknown facts."""
    from datetime import datetime

    now = datetime.fromisoformat(fleet.at)

    def ago(moment: str) -> str:
        return f"{max(0, round((now - datetime.fromisoformat(moment)).total_seconds()))} s ago"

    yield from ("", f"fleet: {fleet.bucket}, server {fleet.server}")

    for one in fleet.features[:_MAX_SHOWN]:
        text = f"last recorded {ago(one.recorded)}" if one.recorded else "record unreadable"
        if one.worker == NO_WORKER_YET:
            text += "; waiting for a worker"
        elif one.worker:
            text += f"; worker {one.worker}, last heartbeat {ago(one.seen)}"
        if one.why:
            text += f"; stopped: {one.why}"

        yield f"  {one.feature}: {text}"

    if len(fleet.features) > _MAX_SHOWN:
        yield f"  and {len(fleet.features) - _MAX_SHOWN} more"

    for worker in fleet.workers[:_MAX_SHOWN]:
        version = f", version {worker.version}" if worker.version else ""
        yield f"  worker {worker.name}{version}, last seen {ago(worker.seen)}"

    yield from _fleet_wait_lines(fleet)


def _fleet_wait_lines(fleet: FleetStatus) -> Iterator[str]:
    """Yield why features of a fleet wait, and which reasons are unknown."""
    if fleet.paused:
        yield f"  paused since {fleet.paused}: nothing new starts; phasegate fleet resume"

    for queue in fleet.unserved:
        features = ", ".join(queue.features[:_MAX_SHOWN])
        text = f"  no worker for queue {queue.name} (since {queue.since}; {features})"
        yield f"{text}: {queue.why}" if queue.why else text

    if fleet.unknown:
        yield f"  workers and queues are unknown: {fleet.unknown}"


def _overlap_lines(overview: Overview) -> Iterator[str]:
    if overview.overlaps:
        from phasegate.core.plan.feature_overlap import format_overlap

        yield from ("", *(escape_unprintable(format_overlap(one)) for one in overview.overlaps))


def render_packages(cards: Sequence[PackageCard], verdicts: Mapping[str, str]) -> str:
    """Render packages with their jobs, and the verdicts of those that gave one."""
    return "".join(f"{line}\n" for card in cards for line in _package_lines(card, verdicts))


def _spent_lines(spent: dict[str, Spending]) -> list[str]:
    """Return the line of spending; empty if nothing was used.

    The total of all features is added if it differs.
    """
    total = spent["all"]
    if not any(total):
        return []

    of_feature = spent.get("feature", total)
    text = f"spent: {spent_in_words(of_feature)}"
    if of_feature != total:
        text += f"; all features: {spent_in_words(total)}"

    return ["", text]


def _other_line(card: FeatureCard, of_fleet: str) -> str:
    """Render the line of another active feature."""
    standing = _STANDING_LABELS[card.standing]
    if card.worker and card.worker.command == NO_WORKER_YET:
        standing = "waiting for a worker"

    text = f"also {standing}: {card.feature}, {card.phase}"
    if card.stage != "working":
        text += f", {card.stage}"
    if card.standing == "stopped":
        text += f"; continue: phasegate run --feature {card.feature}{of_fleet}"

    return escape_unprintable(text)


def _waiting_lines(overview: Overview) -> Iterator[str]:
    """Yield the decisions that wait for the user, each with the command that makes it.

    The feature that is shown in full reports its own.
    """
    shown_workflow = overview.workflow.feature if overview.workflow else ""
    shown_packages = overview.features[0].feature if overview.features else ""
    others = [
        one
        for one in overview.waiting
        if one.question or one.feature != (shown_packages if one.package else shown_workflow)
    ]
    of_fleet = FLEET_OPTION if overview.fleet else ""
    if others:
        yield from ("", "also waiting for you:")

    for one in others:
        text = f"{one.feature} {one.package}".rstrip() + f": {_DECISION_LABELS[one.asked]}"
        if one.phase:
            text += f" in {one.phase}"
        if one.reason:
            text += f": {one.reason}"

        yield escape_unprintable(f"  {text}")
        if needs_only_run(one.remediation):
            yield escape_unprintable(f"    what to do: {one.remediation}")
            continue
        first, *further = _decision_commands(one, of_fleet)
        yield escape_unprintable(f"    then: {first}{of_fleet}")
        yield from (escape_unprintable(f"      or: {other}{of_fleet}") for other in further)


def _decision_commands(one: PendingDecision, of_fleet: str) -> list[str]:
    """Return the commands that make a decision; a question has one for each option."""
    if one.asked == "answer":
        return list_answer_commands(one.question, one.options, one.feature)

    order = {
        "resolve": 'resolve "how"',
        "dispatch": f"dispatch {one.package}",
        "show": f"show {one.package}",
        "complete": merge_verb(of_fleet),
    }.get(one.asked, one.asked)
    return [f"phasegate {order} --feature {one.feature}"]


def _overview_lines(
    overview: Overview, others: Sequence[FeatureCard], page: StatusPage
) -> Iterator[str]:
    """Yield the main lines. Without a workflow, `others` are the ended features."""
    style = page.style
    workflow = overview.workflow

    if workflow:
        beside = [
            _other_line(card, FLEET_OPTION if overview.fleet else "")
            for card in others
            if card.standing in _STANDING_LABELS
        ]
        yield from (
            *workflow_lines(
                workflow,
                style,
                _option_suffix(overview, workflow.feature),
                use_symbols=page.is_drawn,
            ),
            *beside,
        )
    else:
        yield from (_NO_WORKFLOW, *map(_ended_line, others[:1]))

    if not overview.features:
        yield NO_PACKAGES
        return

    first, *further = overview.features
    in_workflow = workflow is not None and workflow.feature == first.feature
    if workflow and workflow.feature and not in_workflow:
        # Packages of another feature would look like those of the one above
        yield f"{escape_unprintable(workflow.feature)} has no work packages yet"
        return

    rows = [*map(_escape_card, first.packages)]
    board = _package_board_lines(rows, page, in_workflow, _option_suffix(overview, first.feature))
    yield from ("", style(escape_unprintable(first.feature), "bold"), *board)
    current = {row.id: row.tasks for row in rows if row.state != "REPLACED"}
    if summary := summarize_tasks(current):
        yield from ("", summary)

    if further:
        yield ""
    for one in further:
        counts = ", ".join(
            f"{number} {escape_unprintable(state)}"
            for state, number in one.counts.items()
            if number
        )
        yield f"{escape_unprintable(one.feature)}: {counts}"


def _option_suffix(overview: Overview, feature: str) -> str:
    """Return the options that a suggested command needs: the feature if ambiguous, the fleet."""
    is_workflow = overview.workflow is not None and overview.workflow.feature == feature
    others = overview.others if is_workflow else overview.features[1:]
    suffix = f" --feature {escape_unprintable(feature)}" if others else ""

    return suffix + (FLEET_OPTION if overview.fleet else "")


def _package_board_lines(
    rows: list[PackageCard], page: StatusPage, in_workflow: bool, option_suffix: str
) -> Iterator[str]:
    """Yield the packages: shortened on a terminal, complete in a file or pipe."""
    yield from board_lines(rows, page.width, len(rows) if page.is_long else _MAX_SHOWN, page.style)
    if page.is_drawn and (graph := _render_graph(rows, page)):
        yield from ("", graph)

    limit = len(rows) if page.is_long else _MAX_BLOCKERS
    blockers = [*blocker_lines(rows, limit, in_workflow, page.style, option_suffix)]
    if blockers:
        yield from ("", *blockers)


def _render_graph(rows: list[PackageCard], page: StatusPage) -> str:
    from phasegate.core.plan.dependencies import compute_waves

    by_id = {row.id: row for row in rows}
    waits_for = {row.id: [one for one in row.waits_for or () if one in by_id] for row in rows}
    return graph_line(
        [[by_id[name] for name in wave] for wave in compute_waves(waits_for)],
        page.width,
        page.style,
    )


def _escape_card(row: PackageCard) -> PackageCard:
    """Return a card without control characters that a terminal would interpret."""
    if f"{row.id}{row.state}{row.title}{row.reason}{row.remediation}".isprintable():
        return row

    return row._replace(
        id=escape_unprintable(row.id),
        state=escape_unprintable(row.state),
        title=escape_unprintable(row.title),
        reason=escape_unprintable(row.reason),
        remediation=escape_unprintable(row.remediation),
    )


def _ended_line(card: FeatureCard) -> str:
    where = describe_merge(card.type, card.stage, card.base, card.merged)
    return f"{escape_unprintable(card.feature)} is {card.stage}: {where}"


def _package_lines(card: PackageCard, verdicts: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a package, with its state, reason and next step."""
    row = _escape_card(card)
    reason = f"  {row.reason}" if row.reason else ""
    yield f"{row.feature}  {row.id}  {row.state:<10}  {row.title}{reason}"
    if row.worker:
        worker = row.worker._replace(since=_time_ago(row.worker.since))
        yield f"    running: {worker_line(worker)}"
    if row.standing == "stopped":
        yield "    stopped: no process is running"
    if row.remediation:
        yield f"    what to do: {row.remediation}"
    if row.tasks:
        yield escape_unprintable(f"    tasks, as reported: {format_task_statuses(row.tasks)}")
    if any(row.spent):
        yield f"    spent: {spent_in_words(row.spent)}"
    if row.pr_url:
        yield escape_unprintable(f"    pull request: {row.pr_url}")

    if row.said:
        from phasegate.engine.views.claims import render_agent_claims

        yield from (escape_unprintable(f"    {line}") for line in render_agent_claims(row.said))

    for job in row.jobs or ():
        outcome = verdicts.get(job.id) or job.outcome
        outcome = outcome or ("stopped" if row.standing == "stopped" else "running")
        yield escape_unprintable(
            f"    {_time_ago(job.started):<11}  round {job.round}  {job.phase:<9}  {job.agent}"
            f"  {outcome}"
        )


def render_package_line(card: PackageCard) -> str:
    """Render a package on one line."""
    reason = f"  {card.reason}" if card.reason else ""
    return escape_unprintable(f"{card.feature}  {card.id}  {card.state:<10}  {card.title}{reason}")


def render_worktrees(cards: Sequence[PackageCard], worktrees_folder: str, *, show_all: bool) -> str:
    """Render packages with their worktrees."""
    lines = [
        f"{render_package_line(card)}  {worktrees_folder}/{card.feature}-{card.id}"
        for card in cards
    ]
    return "\n".join(lines) or (NO_PACKAGES if show_all else "no package is ready")
