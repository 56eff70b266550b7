"""The query side: where everything stands, as values.

Every door shows these, and every `--json` is made of them.

This module loads little, since `status` is asked all day; `feature_view`, `package_view` and
`job_view` hold the rest. A field that is None is not part of this answer: a list of packages does
not carry each one's jobs and plan.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from phasegate.core.display.status import (
    ENDED_STAGE_NAMES,
    HIDDEN_CHARACTERS_PREFIX,
    NOTICE_KIND,
    RUN_FAILED_PREFIX,
    SHORT_ORDERS,
    FeatureCard,
    Worker,
    build_phase_cards,
    count_by_state,
    derive_package_standing,
    derive_standing,
    list_waiting_orders,
    read_workflow_card,
)
from phasegate.core.plan.task_status import decode_task_statuses
from phasegate.core.text.light_json import parse_json
from phasegate.core.workflow.spending import Spending
from phasegate.engine.journal.questions import AgentQuestion, read_all_open_questions
from phasegate.engine.project.active_state import read_active_state
from phasegate.errors import ConfigError
from phasegate.files import read_regular_file
from phasegate.storage.location import locate_repository, state_home
from phasegate.storage.lock_holder import (
    MAX_LOCK_FILE_BYTES,
    find_live_holder,
    is_alive,
    list_lock_names,
    parse_holder,
)

# Doors name the type
from phasegate.storage.reader import StoreReader as StoreReader
from phasegate.storage.reader import open_store_reader
from phasegate.storage.rows import JobRow as JobRow
from phasegate.storage.rows import PackageRow, WorkflowRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from phasegate.core.plan.overlap import FeatureOverlap
    from phasegate.core.plan.work_package import WorkPackage
    from phasegate.engine.views.claims import AgentClaims
    from phasegate.engine.views.feature import FeatureView

# In the user's state directory, while a board runs
BOARD_FILE = "board.json"
STATES_IN_WORK = ("DOING", "FOR_REVIEW")
# Behind every event
MAX_POSITION = 1 << 62
# In the copy of a fleet's record: what its server said last; bytes
FLEET_STATUS_FILE = "signs.json"
MAX_FLEET_STATUS_BYTES = 4_000_000


class AttemptView(NamedTuple):
    """One attempt of a contest: who made it, what became of it, what it cost, and where it is kept."""

    number: int
    agent: str
    outcome: str
    taken: bool
    # Empty where there is none
    commit: str
    # Of one that was not taken
    ref: str
    tokens: int
    cost_usd: float


class PackageCard(NamedTuple):
    """A work package as it stands."""

    feature: str
    id: str
    title: str
    state: str
    # Planned, working, stopped, waiting (for a person), ended
    standing: str
    worker: Worker | None
    round: int
    reason: str
    remediation: str
    since: str
    spent: Spending
    # The last status of each, as reported; empty where there is none yet
    tasks: Mapping[str, str] = {}
    jobs: tuple[JobRow, ...] | None = None
    # By its agents, in their last results
    said: tuple[AgentClaims, ...] | None = None
    waits_for: tuple[str, ...] | None = None
    is_ready: bool | None = None
    # What was loaded
    plan: WorkPackage | None = None
    # Of its contest, if there was one
    attempts: tuple[AttemptView, ...] | None = None
    # About so many fewer in the prompts of reviewers, who were shown what changed
    saved_tokens: int | None = None
    # Of its pull request, where each package has one
    pr_url: str = ""


class FeaturePackages(NamedTuple):
    """The packages of a feature, and how many are in each state."""

    feature: str
    counts: dict[str, int]
    packages: tuple[PackageCard, ...]


class PendingDecision(NamedTuple):
    """Something that waits for a person: what is asked, why, and which orders are allowed."""

    feature: str
    # Empty where it is the feature that waits
    package: str
    phase: str
    # Resolve, complete, dispatch or answer
    asked: str
    reason: str
    remediation: str
    # The commands that are allowed now
    orders: tuple[str, ...]
    # The id of what an agent asks, and its reason is the text
    question: str = ""
    # Of the answer, if the agent names some
    options: tuple[str, ...] = ()


class RateLimitedAgent(NamedTuple):
    """An agent that waits for the end of a limit of its provider."""

    agent: str
    until: str


class FleetFeatureStatus(NamedTuple):
    """Whether something is done for a feature of a fleet now."""

    feature: str
    # When its record grew last
    recorded: str
    # That has a step of it; empty where none has, or that is not known
    worker: str = ""
    # When that worker last told the server that it lives
    seen: str = ""
    # It is not gone on with, as far as that is known
    why: str = ""


class UnservedQueue(NamedTuple):
    """A queue that features wait in, and that no worker serves, or none that takes them.

    `why`, then.
    """

    name: str
    since: str
    features: tuple[str, ...]
    why: str = ""


class FleetStatus(NamedTuple):
    """What was known of a fleet's workers when it was looked at."""

    at: str
    bucket: str
    server: str
    # Why the server could not say; empty if it did
    unknown: str
    # Those that have not ended
    features: tuple[FleetFeatureStatus, ...]
    unserved: tuple[UnservedQueue, ...]


class Overview(NamedTuple):
    """All features: the one that is asked about, or was moved last, and those beside it."""

    workflow: FeatureCard | None
    # Those that have packages, the one that is asked about first
    features: tuple[FeaturePackages, ...]
    # For a person, of all features
    waiting: tuple[PendingDecision, ...]
    blockers: tuple[PackageCard, ...]
    # The other workflows that have not ended
    others: tuple[FeatureCard, ...]
    ended: tuple[FeatureCard, ...]
    # By `feature`, the one that is shown, and `all`
    spent: dict[str, Spending]
    resting: tuple[RateLimitedAgent, ...]
    # What was told about hidden characters in prompts of the feature that is shown
    hidden: tuple[str, ...] = ()
    # The address of the web board, while one runs
    board: str = ""
    # Of the feature that is asked for
    detail: FeatureView | None = None
    # Between features in work
    overlaps: tuple[FeatureOverlap, ...] = ()
    # Where it is a fleet's record that is shown
    fleet: FleetStatus | None = None


def open_reader(folder: str) -> StoreReader | None:
    """The record of the repository around a folder; None if nothing is recorded yet."""
    return open_store_reader(locate_repository(Path(folder), os.environ))


def require_reader(folder: str) -> StoreReader:
    """The record of the repository around a folder, which must be there."""
    reader = open_reader(folder)
    if reader is None:
        raise ConfigError(
            "nothing is recorded in this repository yet", "phasegate plan load kitty-specs/NNN-name"
        )

    return reader


def resolve_feature(folder: str, wanted: str) -> str:
    """The feature that a person names: a beginning that only one has is enough.

    What is unknown is left as it is.
    """
    reader = open_reader(folder)
    known = reader.features() if reader else []
    if wanted not in known:
        found = [slug for slug in known if slug.startswith(wanted)]
    else:
        found = [wanted]

    if len(found) > 1:
        raise ConfigError(
            f"several features begin with {wanted}", f"choose one: {', '.join(sorted(found))}"
        )

    if found:
        return found[0]

    return wanted


def build_overview(reader: StoreReader | None, folder: str, feature: str | None = None) -> Overview:
    """Where everything stands.

    `feature` is shown first, else the active workflow that was moved last.
    """
    rows = reader.workflows() if reader else []
    if reader:
        cards = [feature_card(reader, row) for row in rows]
    else:
        cards = []

    shown = _select_workflow(reader, cards, folder, feature)
    boards = _list_feature_packages(reader, feature or (shown.feature if shown else ""))
    if feature and not shown and all(feature != board.feature for board in boards):
        raise unknown_feature_error(feature, reader.features() if reader else ())

    blockers = tuple(one for board in boards for one in board.packages if one.state == "BLOCKED")
    if reader:
        asked = read_all_open_questions(reader)
    else:
        asked = ()

    waiting = (*_collect_decisions(cards, blockers), *map(_question_decision, asked))
    others = tuple(
        card
        for card in cards
        if card.is_active and (shown is None or card.feature != shown.feature)
    )
    ended = tuple(card for card in cards if not card.is_active)
    first = shown.feature if shown else next((board.feature for board in boards), None)
    if reader and first:
        told = _hidden_character_notices(reader, first)
    else:
        told = ()

    spent = _read_spent(reader, first)
    found = Overview(
        workflow=shown,
        features=boards,
        waiting=waiting,
        blockers=blockers,
        others=others,
        ended=ended,
        spent=spent,
        resting=_rate_limited_agents(reader),
        hidden=told,
        board=read_board_address(),
    )

    if reader and reader.location.fleet_copy:
        return found._replace(fleet=read_fleet_status(reader))

    return found._replace(overlaps=() if feature else _find_overlaps(folder, cards))


def read_fleet_status(reader: StoreReader) -> FleetStatus | None:
    """What was known of the workers of a fleet when its record was copied.

    None where none is shown.
    """
    copy = reader.location.fleet_copy
    if copy:
        content = read_regular_file(copy / FLEET_STATUS_FILE, MAX_FLEET_STATUS_BYTES)
    else:
        content = None

    if content:
        found = parse_json(content.decode())
    else:
        found = None

    if not isinstance(found, list):
        return None

    at, bucket, server, unknown, features, queues = found
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
    )


def _find_overlaps(folder: str, cards: Iterable[FeatureCard]) -> tuple[FeatureOverlap, ...]:
    active = {card.feature: card.base for card in cards if card.is_active}
    if len(active) < 2:
        return ()

    # Git is asked only where there can be any
    from phasegate.engine.views.overlap import find_overlaps

    return find_overlaps(folder, active)


def _hidden_character_notices(reader: StoreReader, feature: str) -> tuple[str, ...]:
    """Each place once, with the package that it was found for."""
    said = (
        parse_json(recorded.payload.decode("utf-8", "replace"))
        for recorded in reader.events_of_kinds(feature, NOTICE_KIND)
    )
    found = (
        (str(one.get("work", "")), str(one.get("text", "")))
        for one in said
        if isinstance(one, dict)
    )
    texts = (
        f"{work}: {text}" if work else text
        for work, text in found
        if text.startswith(HIDDEN_CHARACTERS_PREFIX)
    )

    return tuple(dict.fromkeys(texts))


def read_board_address() -> str:
    """Where this user's board can be reached; empty if none runs."""
    content = read_regular_file(state_home(os.environ) / BOARD_FILE, MAX_LOCK_FILE_BYTES)
    if content:
        holder = parse_holder(content)
    else:
        holder = None

    if holder and is_alive(holder):
        return holder.command

    return ""


def _collect_decisions(
    cards: Iterable[FeatureCard], blockers: Iterable[PackageCard]
) -> Iterator[PendingDecision]:
    """A package of an active workflow is none of its own.

    Its feature waits when nothing else can be done.
    """
    cards = [*cards]

    for one in cards:
        if one.standing == "waiting":
            if one.stage == "blocked":
                asked = "resolve"
            else:
                asked = "complete"

            position = [phase.key for phase in one.phases].index(one.phase)
            orders = list_waiting_orders(one.stage, position, one.merged)
            yield PendingDecision(
                feature=one.feature,
                package="",
                phase=one.phase,
                asked=asked,
                reason=one.reason,
                remediation=one.remediation,
                orders=orders,
            )

    active = {card.feature for card in cards if card.is_active}
    for row in blockers:
        if row.feature not in active:
            yield PendingDecision(
                feature=row.feature,
                package=row.id,
                phase="",
                asked="dispatch",
                reason=row.reason,
                remediation=row.remediation,
                orders=("dispatch",),
            )


def _question_decision(one: AgentQuestion) -> PendingDecision:
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


def list_blocked_package_decisions(reader: StoreReader) -> tuple[PendingDecision, ...]:
    """The packages outside of a workflow that are blocked.

    A dispatch by hand waits for a person too.
    """
    cards = [feature_card(reader, row) for row in reader.workflows()]
    blockers = (
        one
        for board in _list_feature_packages(reader, "")
        for one in board.packages
        if one.state == "BLOCKED"
    )
    return tuple(one for one in _collect_decisions(cards, blockers) if one.asked == "dispatch")


def _rate_limited_agents(reader: StoreReader | None) -> tuple[RateLimitedAgent, ...]:
    if reader:
        found = reader.rate_limited_agents(time.time())
    else:
        found = {}

    moments = {
        agent: time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(until_s))
        for agent, until_s in found.items()
    }
    return tuple(RateLimitedAgent(agent, moment) for agent, moment in moments.items())


def feature_card(reader: StoreReader, row: WorkflowRow) -> FeatureCard:
    """A feature that has a workflow."""
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
    )


def _last_failure(reader: StoreReader, feature: str) -> str:
    """Why the last run ended, if that is the last that is on record."""
    for last in reader.events_before(MAX_POSITION, 1, feature):
        if last.kind == NOTICE_KIND:
            said = parse_json(last.payload.decode())
        else:
            said = None

        if isinstance(said, dict):
            text = str(said.get("text", ""))
        else:
            text = ""

        if text.startswith(RUN_FAILED_PREFIX):
            return text
        return ""

    return ""


def list_waiting_features(reader: StoreReader) -> list[str]:
    """The features that wait for a person's decision, the one that was moved last first."""
    return [row.feature for row in reader.workflows() if _is_waiting(reader, row)]


def _is_waiting(reader: StoreReader, row: WorkflowRow) -> bool:
    is_last = row.position == len(row.phases.split()) - 1
    waits = derive_standing(row.stage, is_last_phase=is_last, has_worker=False) == "waiting"
    return waits and find_worker(reader, row.feature) is None


def find_worker(reader: StoreReader, feature: str, package: str = "") -> Worker | None:
    """The process that works on a feature, or on one of its packages; None if none does.

    No lock is taken.

    Who gives an order does not work on it: a page would offer to stop that, and take the button
    away again.
    """
    if reader.location.fleet_copy:
        if not package:
            signs = read_fleet_status(reader)
        else:
            signs = None

        found = [
            one
            for one in (signs.features if signs else ())
            if one.feature == feature and one.worker
        ]
        if found:
            return Worker(0, found[0].worker, found[0].seen)
        return None

    holder = find_live_holder(
        reader.location.locks_folder, f"{feature}-{package}" if package else feature
    )
    if holder is None or holder.command.partition(" ")[0] in SHORT_ORDERS:
        return None

    return Worker(holder.pid, holder.command, holder.since)


def list_features(reader: StoreReader, feature: str | None = None) -> list[str]:
    """The features on record, the one with the newest event first.

    Or the one that is asked for, which must be.
    """
    known = reader.features()
    if feature is not None and feature not in known:
        raise unknown_feature_error(feature, known)
    if feature is None:
        return known

    return [feature]


def unknown_feature_error(feature: str, known: Iterable[str]) -> ConfigError:
    """The refusal of a feature that nothing is known of."""
    names = ", ".join(sorted(name for name in known if name))
    return ConfigError(
        f"nothing is recorded of feature {feature}", f"known are: {names or 'none yet'}"
    )


def package_cards(
    reader: StoreReader, feature: str, *, wanted: str | None = None
) -> tuple[PackageCard, ...]:
    """The packages of a feature by number, or the wanted one."""
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
    """A package with all runs of agents for it, and what these said."""
    # Decodes: more than a list of packages is worth
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
    """The packages of that id with their jobs, one in each feature that has it."""
    if reader:
        slugs = list_features(reader, feature)
    else:
        slugs = []

    cards = [
        card for slug in slugs if reader for card in package_cards(reader, slug, wanted=wanted)
    ]
    if reader is None or not cards:
        raise ConfigError(f"there is no package {wanted}", "phasegate package list")

    return tuple(with_jobs(reader, card) for card in cards)


def _package_card(
    row: PackageRow, worker: Worker | None, spent: Spending, is_held: bool
) -> PackageCard:
    standing = derive_package_standing(row.state, has_worker=is_held or worker is not None)
    texts = (row.round, row.reason, row.remediation, row.since)
    tasks = decode_task_statuses(row.tasks)
    return PackageCard(
        row.feature, row.id, row.title, row.state, standing, worker, *texts, spent, tasks
    )


def _select_workflow(
    reader: StoreReader | None, cards: Iterable[FeatureCard], folder: str, feature: str | None
) -> FeatureCard | None:
    """The workflow that is asked about, else the active one that was moved last.

    Else one that another tool wrote.
    """
    cards = [*cards]
    chosen = [
        card
        for card in cards
        if (card.feature == feature if feature else card.stage not in ENDED_STAGE_NAMES)
    ]
    if chosen:
        return chosen[0]
    if reader and reader.location.fleet_copy:
        return None

    found = read_workflow_card(read_active_state(folder))
    # What the record knows to be over is not active, whatever an old view says.
    is_known = found is not None and any(card.feature == found.feature for card in cards)
    if found and not is_known and feature in (None, found.feature):
        return found

    return None


def _list_feature_packages(reader: StoreReader | None, first: str) -> tuple[FeaturePackages, ...]:
    if reader:
        return tuple(_iter_feature_packages(reader, first))
    return ()


def _iter_feature_packages(reader: StoreReader, first: str) -> Iterator[FeaturePackages]:
    for slug in sorted(reader.features(), key=lambda slug: slug != first):
        if cards := package_cards(reader, slug):
            yield FeaturePackages(slug, count_by_state(cards), cards)


def _read_spent(reader: StoreReader | None, feature: str | None) -> dict[str, Spending]:
    if reader is None:
        return {"all": Spending()}

    if feature is None:
        own = {}
    else:
        own = {"feature": reader.total_spent(feature)}

    return {**own, "all": reader.total_spent()}
