"""What `status` and `worktree list` say, for a person at a door and for an agent inside its job.

Loads little.
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
    worker_line,
    workflow_lines,
)
from phasegate.core.plan.task_status import format_task_statuses, summarize_tasks
from phasegate.core.text.visible import escape_unprintable
from phasegate.core.workflow.spending import format_spending as spent_in_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
    "complete": "its last gate has passed",
}
_NO_WORKFLOW = 'no workflow is active; begin one: phasegate run feature "..."'


def _no_style(text: str, _: str) -> str:
    return text


class StatusPage(NamedTuple):
    """What a text is shown on: a file or a pipe, unless something else is said."""

    width: int = 100
    # All of it; else as much as a person takes in at a terminal
    is_long: bool = True
    style: Style = _no_style
    # With the rail and the graph: a terminal that has the characters for it
    is_drawn: bool = False


def with_dependencies(found: Overview, reader: StoreReader | None, page: StatusPage) -> Overview:
    """With what each package waits for, where that is drawn: plans are not read for anybody else."""
    if not page.is_drawn or reader is None or not found.features:
        return found

    from phasegate.engine.views.package import planned_cards

    first, *further = found.features

    return found._replace(
        features=(first._replace(packages=planned_cards(reader, first.feature)), *further)
    )


def render_overview(
    found: Overview,
    page: StatusPage = StatusPage(),  # noqa: B008 - frozen
    *,
    chosen: bool = False,
) -> str:
    """The workflow, its phases and gates, the packages on a board, and what is blocked."""
    others = () if chosen else found.others if found.workflow else found.ended
    waiting = () if chosen else _waiting_lines(found)
    resting = [
        escape_unprintable(f"{one.agent} rests at a limit of its provider until {one.until}")
        for one in found.resting
    ]
    if found.hidden:
        hidden = ["", *map(escape_unprintable, found.hidden)]
    else:
        hidden = []

    if found.workflow:
        shown = f"/feature/{found.workflow.feature}"
    else:
        shown = "/"

    if found.board:
        board = [escape_unprintable(f"on the board: {found.board}{shown}")]
    else:
        board = []

    told = (*waiting, *_overlap_lines(found), *hidden, *resting, *_spent_lines(found.spent), *board)
    if found.fleet:
        told = (*told, *map(escape_unprintable, _fleet_lines(found.fleet)))

    lines = (*_overview_lines(found, others, page), *told)
    return "".join(f"{line}\n" for line in lines)


def _fleet_lines(fleet: FleetStatus) -> Iterator[str]:
    """What is known of the workers of a fleet, and since when; what is not known is said."""
    from datetime import datetime

    now = datetime.fromisoformat(fleet.at)

    def ago(moment: str) -> str:
        return f"{max(0, round((now - datetime.fromisoformat(moment)).total_seconds()))} s ago"

    yield from ("", f"fleet: {fleet.bucket}, server {fleet.server}")

    for one in fleet.features[:_MAX_SHOWN]:
        if one.worker:
            worker = f"; worker {one.worker} at it, last sign {ago(one.seen)}"
        else:
            worker = ""

        if one.worker == NO_WORKER_YET:
            worker = "; it waits for a worker"

        if one.recorded:
            recorded = f"last recorded {ago(one.recorded)}"
        else:
            recorded = "nothing can be read"

        yield f"  {one.feature}: {recorded}{worker}{f'; stopped: {one.why}' if one.why else ''}"

    if len(fleet.features) > _MAX_SHOWN:
        yield f"  and {len(fleet.features) - _MAX_SHOWN} more"

    for queue in fleet.unserved:
        waits = f"{queue.name} (since {queue.since}; {', '.join(queue.features[:_MAX_SHOWN])})"
        yield (
            f"  nobody takes what waits in {waits}: {queue.why}"
            if queue.why
            else f"  nobody serves: {waits}"
        )

    if fleet.unknown:
        yield f"  which workers are at work, and which queues nobody serves, is not known: {fleet.unknown}"


def _overlap_lines(found: Overview) -> Iterator[str]:
    if found.overlaps:
        from phasegate.core.plan.overlap import format_overlap

        yield from ("", *(escape_unprintable(format_overlap(one)) for one in found.overlaps))


def render_packages(cards: Sequence[PackageCard]) -> str:
    """Packages with their jobs."""
    return "".join(f"{line}\n" for card in cards for line in _package_lines(card))


def _spent_lines(spent: dict[str, Spending]) -> list[str]:
    """One line, and none where nothing was used.

    All features are named where there is more than the one shown.
    """
    everything = spent["all"]
    own = spent.get("feature", everything)
    if not any(everything):
        return []

    if own == everything:
        others = ""
    else:
        others = f"; all features: {spent_in_words(everything)}"

    return ["", f"spent: {spent_in_words(own)}{others}"]


def _other_line(card: FeatureCard, of_fleet: str) -> str:
    if card.stage == "working":
        stage = ""
    else:
        stage = f", {card.stage}"

    if card.standing == "stopped":
        then = f"; go on: phasegate run --feature {card.feature}{of_fleet}"
    else:
        then = ""

    if card.worker and card.worker.command == NO_WORKER_YET:
        standing = "waiting for a worker"
    else:
        standing = _STANDING_LABELS[card.standing]

    return escape_unprintable(f"also {standing}: {card.feature}, {card.phase}{stage}{then}")


def _waiting_lines(found: Overview) -> Iterator[str]:
    """What waits for a person besides what is shown in full, which says so itself.

    Each with the order to give.
    """
    shown = (
        found.workflow.feature if found.workflow else "",
        found.features[0].feature if found.features else "",
    )
    others = [
        one for one in found.waiting if one.question or one.feature != shown[bool(one.package)]
    ]
    of_fleet = FLEET_OPTION if found.fleet else ""

    for number, one in enumerate(others):
        yield from ["", "also waiting for you:"] if number == 0 else []
        what = (
            f"{one.feature} {one.package}".rstrip()
            + f": {_DECISION_LABELS[one.asked]}"
            + f" in {one.phase}" * bool(one.phase)
        )
        yield escape_unprintable(f"  {what}{f': {one.reason}' if one.reason else ''}")
        yield escape_unprintable(
            f"    then: phasegate {_order_command(one, of_fleet)} --feature {one.feature}{of_fleet}"
        )


def _order_command(one: PendingDecision, of_fleet: str) -> str:
    return {
        "answer": f'answer {one.question} "{" | ".join(one.options) or "..."}"',
        "resolve": 'resolve "how"',
        "dispatch": f"dispatch {one.package}",
        "complete": merge_verb(of_fleet),
    }.get(one.asked, one.asked)


def _overview_lines(
    found: Overview, others: Sequence[FeatureCard], page: StatusPage
) -> Iterator[str]:
    """`others` are those beside the one shown, or without one, those that have ended."""
    style = page.style
    workflow = found.workflow

    if workflow:
        beside = [
            _other_line(card, FLEET_OPTION if found.fleet else "")
            for card in others
            if card.standing in _STANDING_LABELS
        ]
        yield from (
            *workflow_lines(
                workflow, style, _option_suffix(found, workflow.feature), use_symbols=page.is_drawn
            ),
            *beside,
        )
    else:
        yield from (_NO_WORKFLOW, *map(_ended_line, others[:1]))

    if not found.features:
        yield NO_PACKAGES
        return

    first, *further = found.features
    in_workflow = workflow is not None and workflow.feature == first.feature
    rows = [*map(_escape_card, first.packages)]
    board = _package_board_lines(rows, page, in_workflow, _option_suffix(found, first.feature))
    yield from ("", style(escape_unprintable(first.feature), "bold"), *board)
    if told := summarize_tasks({row.id: row.tasks for row in rows}):
        yield from ("", told)

    yield from [""] if further else []
    for one in further:
        told = ", ".join(
            f"{number} {escape_unprintable(state)}"
            for state, number in one.counts.items()
            if number
        )
        yield f"{escape_unprintable(one.feature)}: {told}"


def _option_suffix(found: Overview, feature: str) -> str:
    """Beside others, a hint names its feature; one of the fleet says so."""
    others = (
        found.others if found.workflow and found.workflow.feature == feature else found.features[1:]
    )
    return f"{f' --feature {escape_unprintable(feature)}' if others else ''}{FLEET_OPTION if found.fleet else ''}"


def _package_board_lines(
    rows: list[PackageCard], page: StatusPage, in_workflow: bool, option_suffix: str
) -> Iterator[str]:
    """On a terminal as much as a person takes in; into a file or a pipe all of it."""
    yield from board_lines(rows, page.width, len(rows) if page.is_long else _MAX_SHOWN, page.style)
    if graph := _render_graph(rows, page) if page.is_drawn else "":
        yield from ("", graph)

    blockers = [
        *blocker_lines(
            rows,
            len(rows) if page.is_long else _MAX_BLOCKERS,
            in_workflow,
            page.style,
            option_suffix,
        )
    ]

    yield from ["", *blockers] if blockers else []


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
    """A row with nothing in it that a terminal would obey."""
    if f"{row.id}{row.state}{row.title}{row.reason}{row.remediation}".isprintable():
        return row

    plain = row._replace(
        id=escape_unprintable(row.id),
        state=escape_unprintable(row.state),
        title=escape_unprintable(row.title),
    )
    return plain._replace(
        reason=escape_unprintable(row.reason), remediation=escape_unprintable(row.remediation)
    )


def _ended_line(card: FeatureCard) -> str:
    where = describe_merge(card.type, card.stage, card.base, card.merged)
    return f"{escape_unprintable(card.feature)} is {card.stage}: {where}"


def _package_lines(card: PackageCard) -> Iterator[str]:
    row = _escape_card(card)
    why = f"  {row.reason}" if row.reason else ""
    yield f"{row.feature}  {row.id}  {row.state:<10}  {row.title}{why}"
    if row.worker:
        yield f"    running: {worker_line(row.worker)}"
    if row.standing == "stopped":
        yield "    stopped: no process works on it"
    if row.remediation:
        yield f"    what to do: {row.remediation}"
    if row.tasks:
        yield escape_unprintable(f"    tasks, as reported: {format_task_statuses(row.tasks)}")
    if any(row.spent):
        yield f"    spent: {spent_in_words(row.spent)}"
    if row.pr_url:
        yield f"    pull request: {row.pr_url}"

    if row.said:
        from phasegate.engine.views.claims import render_agent_claims

        yield from (escape_unprintable(f"    {line}") for line in render_agent_claims(row.said))

    for job in row.jobs or ():
        how = job.outcome or ("stopped" if row.standing == "stopped" else "running")
        yield escape_unprintable(
            f"    {job.started}  round {job.round}  {job.phase:<9}  {job.agent}  {how}"
        )


def render_package_line(card: PackageCard) -> str:
    """A package on one line."""
    why = f"  {card.reason}" if card.reason else ""
    return escape_unprintable(f"{card.feature}  {card.id}  {card.state:<10}  {card.title}{why}")


def render_worktrees(cards: Sequence[PackageCard], worktrees_folder: str, *, show_all: bool) -> str:
    """Packages with their worktrees."""
    lines = [
        f"{render_package_line(card)}  {worktrees_folder}/{card.feature}-{card.id}"
        for card in cards
    ]
    return "\n".join(lines) or (NO_PACKAGES if show_all else "no package is ready")
