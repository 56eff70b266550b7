"""The state of all features as values: every interface renders them, and `--json` prints them.

This module imports little, because `status` is called often; `feature`, `package` and `job` in this
package have the rest. A field that is None is not part of the answer: a list of packages does not
carry each package's jobs and plan.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from phasegate.core.display.status import (
    ENDED_STAGE_NAMES,
    NOTICE_KIND,
    RUN_FAILED_PREFIX,
    SHORT_ORDERS,
    SHOWN_NOTICE_PREFIXES,
    FeatureCard,
    Worker,
    build_phase_cards,
    count_by_state,
    derive_package_standing,
    derive_standing,
    list_waiting_orders,
    read_workflow_card,
)
from phasegate.core.paths.own_folders import CONFIG_FILE
from phasegate.core.plan.task_status import decode_task_statuses
from phasegate.core.text.light_json import parse_json
from phasegate.core.workflow.spending import Spending
from phasegate.engine.journal.questions import AgentQuestion, read_all_open_questions
from phasegate.engine.project.active_state import read_active_state
from phasegate.errors import ConfigError, PhasegateError
from phasegate.files import read_regular_file
from phasegate.storage.location import locate_repository, state_home
from phasegate.storage.lock_holder import (
    MAX_LOCK_FILE_BYTES,
    find_live_holder,
    is_alive,
    list_lock_names,
    parse_holder,
)

# Re-exported for interfaces
from phasegate.storage.reader import StoreReader as StoreReader
from phasegate.storage.reader import open_store_reader
from phasegate.storage.repository_kind import find_repository
from phasegate.storage.rows import JobRow as JobRow
from phasegate.storage.rows import PackageRow, WorkflowRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from phasegate.core.plan.feature_overlap import FeatureOverlap
    from phasegate.core.plan.work_package import WorkPackage
    from phasegate.engine.views.claims import AgentClaims
    from phasegate.engine.views.feature import FeatureView

BRANCH_OF_FEATURE = "feat/"
# In the user's state directory while a board runs
BOARD_FILE = "board.json"
STATES_IN_WORK = ("DOING", "FOR_REVIEW")
# Greater than the position of any event
MAX_POSITION = 1 << 62
# Last known status of the workers, in the copy of a fleet's record
FLEET_STATUS_FILE = "signs.json"
MAX_FLEET_STATUS_BYTES = 4_000_000


class AttemptView(NamedTuple):
    """One attempt of a contest: its agent, outcome, cost and where it is kept."""

    number: int
    agent: str
    outcome: str
    taken: bool
    # Empty without changes
    commit: str
    # Where an attempt that was not taken is kept
    ref: str
    tokens: int
    cost_usd: float


class PackageCard(NamedTuple):
    """The current state of a work package."""

    feature: str
    id: str
    title: str
    state: str
    # planned, working, stopped, waiting (for the user) or ended
    standing: str
    worker: Worker | None
    round: int
    reason: str
    remediation: str
    since: str
    spent: Spending
    # The last reported status of each task; empty if none was reported
    tasks: Mapping[str, str] = {}
    jobs: tuple[JobRow, ...] | None = None
    # Claims in the last results of its agents
    said: tuple[AgentClaims, ...] | None = None
    waits_for: tuple[str, ...] | None = None
    is_ready: bool | None = None
    # The plan as it was loaded
    plan: WorkPackage | None = None
    # Attempts of its contest, if there is one
    attempts: tuple[AttemptView, ...] | None = None
    # Estimated tokens saved in prompts by delta reviews
    saved_tokens: int | None = None
    # Set if packages have their own pull requests
    pr_url: str = ""


class FeaturePackages(NamedTuple):
    """The packages of a feature, and the number in each state."""

    feature: str
    counts: dict[str, int]
    packages: tuple[PackageCard, ...]


class PendingDecision(NamedTuple):
    """A decision that waits for the user: the question, the reason, and the allowed orders."""

    feature: str
    # Empty if the feature waits
    package: str
    phase: str
    # resolve, complete, dispatch, answer, or show: a blocked package of a running feature
    asked: str
    reason: str
    remediation: str
    # Commands that are allowed now
    orders: tuple[str, ...]
    # Id of an agent's question, whose text is in `reason`
    question: str = ""
    # Answers that the agent proposes
    options: tuple[str, ...] = ()


class RateLimitedAgent(NamedTuple):
    """An agent that is rate-limited by its provider."""

    agent: str
    until: str


class FleetFeatureStatus(NamedTuple):
    """Whether a worker of the fleet processes a feature now."""

    feature: str
    # Time of the last recorded event
    recorded: str
    # Worker that runs a step of the feature; empty if there is none or it is unknown
    worker: str = ""
    # Last heartbeat of that worker
    seen: str = ""
    # Why it is not processed, if known
    why: str = ""


class UnservedQueue(NamedTuple):
    """A queue with waiting features and no worker that accepts them.

    `why` is set if there are workers that do not take them.
    """

    name: str
    since: str
    features: tuple[str, ...]
    why: str = ""


class FleetWorkerStatus(NamedTuple):
    """A worker that is connected to the server, with its version and its last poll."""

    name: str
    version: str
    seen: str


class FleetStatus(NamedTuple):
    """The state of a fleet's workers when it was last queried."""

    at: str
    bucket: str
    server: str
    # Why the server gave no answer; empty if it did
    unknown: str
    # Features that have not ended
    features: tuple[FleetFeatureStatus, ...]
    unserved: tuple[UnservedQueue, ...]
    workers: tuple[FleetWorkerStatus, ...] = ()
    # Since when it is paused; empty if it is not
    paused: str = ""


class Overview(NamedTuple):
    """All features: the requested or most recently changed one, and the others."""

    workflow: FeatureCard | None
    # Features with packages, the requested one first
    features: tuple[FeaturePackages, ...]
    # Decisions of all features
    waiting: tuple[PendingDecision, ...]
    blockers: tuple[PackageCard, ...]
    # The other workflows that have not ended
    others: tuple[FeatureCard, ...]
    ended: tuple[FeatureCard, ...]
    # Keys: `feature` (the one shown) and `all`
    spent: dict[str, Spending]
    resting: tuple[RateLimitedAgent, ...]
    # Notices on hidden characters in prompts, or on a missing sandbox, of the feature that is shown
    hidden: tuple[str, ...] = ()
    # Address of the running web board
    board: str = ""
    # Details of the requested feature
    detail: FeatureView | None = None
    # Between active features
    overlaps: tuple[FeatureOverlap, ...] = ()
    # Set if a fleet's record is shown
    fleet: FleetStatus | None = None
    # Cost in USD of each feature for which agents reported one
    costs: dict[str, float] = {}  # noqa: RUF012 - frozen


def open_reader(folder: str) -> StoreReader | None:
    """Open the record of the repository that contains a folder; None if it has none yet."""
    reader = open_store_reader(locate_repository(Path(folder), os.environ))
    if reader is not None:
        from phasegate.storage.chain_heads import refuse_foreign_store

        try:
            refuse_foreign_store(reader)
        except BaseException:
            reader.__exit__()
            raise

    return reader


def is_config_unchecked(reader: StoreReader) -> bool:
    """Return whether phasegate.toml changed after the last entry of the store.

    Every command that writes an entry loads the file first.
    """
    location = reader.location
    try:
        # Moving an old file here changes only its ctime
        changed_s = (location.root / CONFIG_FILE).stat().st_ctime
    except OSError:
        return False

    store = location.store_path
    return _written_s(store) < changed_s and _written_s(Path(f"{store}-wal")) < changed_s


def _written_s(path: Path) -> float:
    """Return when a file was written last, or 0 if it is missing or empty."""
    try:
        found = path.stat()
    except OSError:
        return 0.0

    # Opening the store for reading may create an empty write-ahead log
    if found.st_size == 0:
        return 0.0
    return found.st_mtime


def require_reader(folder: str) -> StoreReader:
    """Open the record of the repository that contains a folder; raise if it has none."""
    reader = open_reader(folder)
    if reader is None:
        raise ConfigError(
            "nothing is recorded in this repository yet", "phasegate plan load kitty-specs/NNN-name"
        )

    return reader


def resolve_feature(folder: str, wanted: str) -> str:
    """Return the feature with this name or unique prefix. An unknown name is returned unchanged."""
    reader = open_reader(folder)
    known = reader.features() if reader else []
    if wanted in known:
        return wanted

    matches = [slug for slug in known if slug.startswith(wanted)]
    if len(matches) > 1:
        raise ConfigError(
            f"several features start with {wanted}", f"choose one: {', '.join(sorted(matches))}"
        )

    return matches[0] if matches else wanted


def find_branch_feature(folder: str) -> str | None:
    """Return the active feature whose branch is checked out, or None if it is another branch."""
    try:
        branch = find_repository(folder).branch or ""
        reader = open_reader(folder) if branch.startswith(BRANCH_OF_FEATURE) else None
    except PhasegateError:
        return None

    slug = branch.removeprefix(BRANCH_OF_FEATURE)
    rows = reader.workflows() if reader else ()
    is_active = any(row.feature == slug and row.stage not in ENDED_STAGE_NAMES for row in rows)
    return slug if is_active else None


def build_overview(reader: StoreReader | None, folder: str, feature: str | None = None) -> Overview:
    """Build the overview; `feature` is shown first, else the last changed active workflow."""
    cards = [feature_card(reader, row) for row in reader.workflows()] if reader else []
    shown = _select_workflow(reader, cards, folder, feature)
    boards = _list_feature_packages(reader, feature or (shown.feature if shown else ""))
    if feature and not shown and all(feature != board.feature for board in boards):
        raise unknown_feature_error(feature, reader.features() if reader else ())

    blockers = tuple(one for board in boards for one in board.packages if one.state == "BLOCKED")
    questions = read_all_open_questions(reader) if reader else ()
    waiting = _collect_decisions(cards, blockers, questions)
    others = tuple(
        card
        for card in cards
        if card.is_active and (shown is None or card.feature != shown.feature)
    )
    ended = tuple(card for card in cards if not card.is_active)
    first = shown.feature if shown else next((board.feature for board in boards), None)
    overview = Overview(
        workflow=shown,
        features=boards,
        waiting=waiting,
        blockers=blockers,
        others=others,
        ended=ended,
        spent=_read_spent(reader, first),
        resting=_rate_limited_agents(reader),
        hidden=_lasting_notices(reader, first) if reader and first else (),
        board=read_board_address(),
        costs=_read_costs(reader),
    )

    if reader and reader.location.fleet_copy:
        return overview._replace(fleet=read_fleet_status(reader))

    return overview._replace(overlaps=() if feature else _find_overlaps(folder, cards))


def read_fleet_status(reader: StoreReader) -> FleetStatus | None:
    """Return the state of a fleet's workers when its record was last copied.

    Return None without a fleet, or if the file is missing or damaged.
    """
    copy = reader.location.fleet_copy
    content = read_regular_file(copy / FLEET_STATUS_FILE, MAX_FLEET_STATUS_BYTES) if copy else None
    if not content:
        return None

    try:
        return _parse_fleet_status(content)
    except (ValueError, TypeError, StopIteration, RecursionError):
        return None


def _parse_fleet_status(content: bytes) -> FleetStatus:
    """Decode the stored fleet status; raise TypeError if it is not a list."""
    fields = parse_json(content.decode())
    if not isinstance(fields, list):
        raise TypeError("not a list")

    at, bucket, server, unknown, features, queues, *more = fields
    unserved = tuple(
        UnservedQueue(name, since, tuple(waiting), *why) for name, since, waiting, *why in queues
    )

    return FleetStatus(
        at=at,
        bucket=bucket,
        server=server,
        unknown=unknown,
        features=tuple(FleetFeatureStatus(*one) for one in features),
        unserved=unserved,
        workers=tuple(FleetWorkerStatus(*one) for one in (more[0] if more else ())),
        paused=str(more[1]) if len(more) > 1 else "",
    )


def _find_overlaps(folder: str, cards: Iterable[FeatureCard]) -> tuple[FeatureOverlap, ...]:
    active = {card.feature: card.base for card in cards if card.is_active}
    if len(active) < 2:
        return ()

    # Imported here: git runs only if there can be overlaps.
    from phasegate.engine.views.feature_overlap import find_overlaps

    return find_overlaps(folder, active)


def _lasting_notices(reader: StoreReader, feature: str) -> tuple[str, ...]:
    """Return each notice that stays in the status once, with its package."""
    texts = []
    for recorded in reader.events_of_kinds(feature, NOTICE_KIND):
        notice = parse_json(recorded.payload.decode("utf-8", "replace"))
        if isinstance(notice, dict):
            work = str(notice.get("work", ""))
            text = str(notice.get("text", ""))
            if text.startswith(SHOWN_NOTICE_PREFIXES):
                texts.append(f"{work}: {text}" if work else text)

    return tuple(dict.fromkeys(texts))


def read_board_address() -> str:
    """Return the address of this user's running board; empty if none is running."""
    content = read_regular_file(state_home(os.environ) / BOARD_FILE, MAX_LOCK_FILE_BYTES)
    holder = parse_holder(content) if content else None
    if holder and is_alive(holder):
        return holder.command

    return ""


def list_pending_decisions(reader: StoreReader) -> tuple[PendingDecision, ...]:
    """List everything that waits for the user. Every interface counts and shows this list."""
    cards = [feature_card(reader, row) for row in reader.workflows()]
    blockers = (
        one
        for board in _list_feature_packages(reader, "")
        for one in board.packages
        if one.state == "BLOCKED"
    )
    return _collect_decisions(cards, blockers, read_all_open_questions(reader))


def _collect_decisions(
    cards: Iterable[FeatureCard],
    blockers: Iterable[PackageCard],
    questions: Iterable[AgentQuestion],
) -> tuple[PendingDecision, ...]:
    """Return the decisions of features, of blocked packages, and the open questions.

    A blocked package of a feature that waits itself is part of the feature's decision.
    """
    by_feature = {card.feature: card for card in cards}
    decisions = [_feature_decision(card) for card in by_feature.values() if _is_waiting(card)]

    for row in blockers:
        card = by_feature.get(row.feature)
        if card is not None and (_is_waiting(card) or not card.is_active):
            continue

        decisions.append(
            PendingDecision(
                feature=row.feature,
                package=row.id,
                phase=card.phase if card else "",
                asked="show" if card else "dispatch",
                reason=row.reason,
                remediation=row.remediation,
                orders=() if card else ("dispatch",),
            )
        )

    return (*decisions, *map(_question_decision, questions))


def _is_waiting(card: FeatureCard) -> bool:
    return card.standing == "waiting"


def _feature_decision(card: FeatureCard) -> PendingDecision:
    position = [phase.key for phase in card.phases].index(card.phase)
    return PendingDecision(
        feature=card.feature,
        package="",
        phase=card.phase,
        asked="resolve" if card.stage == "blocked" else "complete",
        reason=card.reason,
        remediation=card.remediation,
        orders=list_waiting_orders(card.stage, position, card.merged),
    )


def _question_decision(one: AgentQuestion) -> PendingDecision:
    """Create the decision that an open question asks for."""
    return PendingDecision(
        feature=one.feature,
        package=one.work,
        phase="",
        asked="answer",
        reason=one.text,
        remediation="",
        orders=("answer",),
        question=one.id,
        options=one.options,
    )


def _rate_limited_agents(reader: StoreReader | None) -> tuple[RateLimitedAgent, ...]:
    limits = reader.rate_limited_agents(time.time()) if reader else {}
    return tuple(
        RateLimitedAgent(agent, time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(until_s)))
        for agent, until_s in limits.items()
    )


def feature_card(reader: StoreReader, row: WorkflowRow) -> FeatureCard:
    """Return the card of a feature that has a workflow."""
    keys = row.phases.split()
    worker = find_worker(reader, row.feature)
    outcomes = {gate.phase: gate.outcome for gate in reader.gates(row.feature)}
    standing = derive_standing(
        row.stage, is_last_phase=row.position == len(keys) - 1, has_worker=worker is not None
    )

    return FeatureCard(
        feature=row.feature,
        type=row.type,
        description=row.description,
        standing=standing,
        worker=worker,
        stage=row.stage,
        round=row.round,
        reason=(_last_failure(reader, row.feature) if standing == "stopped" else "") or row.reason,
        remediation=row.remediation,
        phase=keys[row.position],
        phases=build_phase_cards(keys, row.position, row.stage, outcomes),
        base=row.base,
        merged=row.merged,
        since=row.since,
    )


def _last_failure(reader: StoreReader, feature: str) -> str:
    """Return why the last run failed, if that is the last entry of the record."""
    for last in reader.events_before(MAX_POSITION, 1, feature):
        notice = parse_json(last.payload.decode()) if last.kind == NOTICE_KIND else None
        text = str(notice.get("text", "")) if isinstance(notice, dict) else ""
        if text.startswith(RUN_FAILED_PREFIX):
            return text

    return ""


def list_waiting_features(reader: StoreReader) -> list[str]:
    """List the features that wait for the user's decision, most recently changed first."""
    cards = (feature_card(reader, row) for row in reader.workflows())
    return [card.feature for card in cards if _is_waiting(card)]


def find_worker(reader: StoreReader, feature: str, package: str = "") -> Worker | None:
    """Return the process that works on a feature or package; None if there is none. Takes no lock.

    A process that only executes a short order does not count: a page would offer to stop it, and
    remove the button a moment later.
    """
    if reader.location.fleet_copy:
        # The fleet's status names the worker of a feature, not of a package
        fleet = None if package else read_fleet_status(reader)
        for status in fleet.features if fleet else ():
            if status.feature == feature and status.worker:
                return Worker(0, status.worker, status.seen)
        return None

    holder = find_live_holder(
        reader.location.locks_folder, f"{feature}-{package}" if package else feature
    )
    if holder is None or holder.command.partition(" ")[0] in SHORT_ORDERS:
        return None

    return Worker(holder.pid, holder.command, holder.since)


def list_features(reader: StoreReader, feature: str | None = None) -> list[str]:
    """List the recorded features, newest event first, or only the given one, which must exist."""
    known = reader.features()
    if feature is not None and feature not in known:
        raise unknown_feature_error(feature, known)
    if feature is None:
        return known

    return [feature]


def unknown_feature_error(feature: str, known: Iterable[str]) -> ConfigError:
    """Return the error for a feature that is not recorded."""
    names = ", ".join(sorted(name for name in known if name))
    return ConfigError(
        f"there is no recorded feature {feature}", f"available: {names or 'none yet'}"
    )


def package_cards(
    reader: StoreReader, feature: str, *, wanted: str | None = None
) -> tuple[PackageCard, ...]:
    """Return the packages of a feature by number, or only the wanted one."""
    rows = [row for row in reader.packages(feature) if wanted in (None, row.id)]
    is_held = find_worker(reader, feature) is not None
    spent = reader.spent_by_package(feature)
    names = list_lock_names(reader.location.locks_folder)
    in_work = {
        row.id for row in rows if row.state in STATES_IN_WORK and f"{feature}-{row.id}" in names
    }
    workers = {id_: find_worker(reader, feature, id_) for id_ in in_work}
    ordered = sorted(rows, key=lambda row: (len(row.id), row.id))

    return tuple(
        _package_card(row, workers.get(row.id), spent.get(row.id, Spending()), is_held)
        for row in ordered
    )


def with_jobs(reader: StoreReader, card: PackageCard) -> PackageCard:
    """Add to a package its jobs, their claims and its pull request."""
    # Imported here: it decodes events, which a list of packages does not need.
    from phasegate.engine.views.claims import (
        find_pull_request_url,
        read_agent_claims,
    )

    jobs = tuple(job for job in reader.jobs(card.feature) if job.wp == card.id)
    said = read_agent_claims(reader, card.feature, card.id)
    url = find_pull_request_url(reader, card.feature, card.id)

    return card._replace(jobs=jobs, said=said, pr_url=url)


def find_package_cards(
    reader: StoreReader | None, wanted: str, feature: str | None = None
) -> tuple[PackageCard, ...]:
    """Return the packages with this id and their jobs, one per feature that has it."""
    cards = []
    if reader:
        for slug in list_features(reader, feature):
            for card in package_cards(reader, slug, wanted=wanted):
                cards.append(with_jobs(reader, card))

    if not cards:
        raise ConfigError(f"there is no package {wanted}", "phasegate package list")

    return tuple(cards)


def _package_card(
    row: PackageRow, worker: Worker | None, spent: Spending, is_held: bool
) -> PackageCard:
    """Create the card of a package from its row."""
    return PackageCard(
        feature=row.feature,
        id=row.id,
        title=row.title,
        state=row.state,
        standing=derive_package_standing(row.state, has_worker=is_held or worker is not None),
        worker=worker,
        round=row.round,
        reason=row.reason,
        remediation=row.remediation,
        since=row.since,
        spent=spent,
        tasks=decode_task_statuses(row.tasks),
    )


def _select_workflow(
    reader: StoreReader | None, cards: Iterable[FeatureCard], folder: str, feature: str | None
) -> FeatureCard | None:
    """Select the requested workflow, else the active one that changed last.

    The last resort is a workflow in a state file that another tool wrote.
    """
    cards = [*cards]
    chosen = [
        card
        for card in cards
        if (card.feature == feature if feature else card.stage not in ENDED_STAGE_NAMES)
    ]
    if chosen:
        on_branch = find_branch_feature(folder) if len(chosen) > 1 else None
        return next((card for card in chosen if card.feature == on_branch), chosen[0])
    if reader and reader.location.fleet_copy:
        return None

    stored_card = read_workflow_card(read_active_state(folder))
    # A workflow that has ended in the record is not active, whatever an old state file says.
    is_known = stored_card is not None and any(
        card.feature == stored_card.feature for card in cards
    )
    if stored_card and not is_known and feature in (None, stored_card.feature):
        return stored_card

    return None


def _list_feature_packages(reader: StoreReader | None, first: str) -> tuple[FeaturePackages, ...]:
    if reader:
        return tuple(_iter_feature_packages(reader, first))
    return ()


def _iter_feature_packages(reader: StoreReader, first: str) -> Iterator[FeaturePackages]:
    for slug in sorted(reader.features(), key=lambda slug: slug != first):
        if cards := package_cards(reader, slug):
            yield FeaturePackages(slug, count_by_state(cards), cards)


def _read_costs(reader: StoreReader | None) -> dict[str, float]:
    costs: dict[str, float] = {}
    for feature, *_, cost_usd, _seconds in reader.usage_totals() if reader else ():
        costs[str(feature)] = costs.get(str(feature), 0.0) + float(cost_usd)
    return {feature: cost for feature, cost in costs.items() if cost}


def _read_spent(reader: StoreReader | None, feature: str | None) -> dict[str, Spending]:
    if reader is None:
        return {"all": Spending()}

    spent = {"all": reader.total_spent()}
    if feature is not None:
        spent = {"feature": reader.total_spent(feature), **spent}

    return spent
