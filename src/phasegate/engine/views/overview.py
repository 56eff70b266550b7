"""The query side: where everything stands, as values. Every door shows these, and every `--json` is made of them.

This module loads little, since `status` is asked all day; `feature_view`, `package_view` and `job_view` hold the rest.
A field that is None is not part of this answer: a list of packages does not carry each one's jobs and plan.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from phasegate.core.display.status import (
    ENDED,
    HIDDEN_TOLD,
    NOTICE,
    ORDERS,
    RUN_FAILED,
    FeatureCard,
    Worker,
    counts,
    orders_while_waiting,
    phases_of,
    standing_of,
    standing_of_package,
    workflow_of,
)
from phasegate.core.plan.task_status import from_line
from phasegate.core.text.light_json import parse_json
from phasegate.core.workflow.spending import Spent
from phasegate.engine.journal.questions import AgentQuestion, unanswered
from phasegate.engine.project.active_state import active_state
from phasegate.errors import ConfigError
from phasegate.files import read_plain
from phasegate.storage.location import locate, state_home
from phasegate.storage.lock_holder import LARGEST_BYTES, feature_holder, is_alive, locked, signed_by
from phasegate.storage.reader import Reader as Reader  # doors name the type
from phasegate.storage.reader import read_store
from phasegate.storage.rows import Job as Job
from phasegate.storage.rows import Package, WorkflowRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from phasegate.core.plan.overlap import FeatureOverlap
    from phasegate.core.plan.work_package import WorkPackage
    from phasegate.engine.views.claims import AgentWords
    from phasegate.engine.views.feature import FeatureView

BOARD = "board.json"  # in the user's state directory, while a board runs
IN_WORK = ("DOING", "FOR_REVIEW")
LAST = 1 << 62  # behind every event
SIGNS, LARGEST_SIGNS = "signs.json", 4_000_000  # in the copy of a fleet's record: what its server said last; bytes


class AttemptView(NamedTuple):
    """One attempt of a contest: who made it, what became of it, what it cost, and where it is kept."""

    number: int
    agent: str
    outcome: str
    taken: bool
    commit: str  # empty where there is none
    ref: str  # of one that was not taken
    tokens: int
    cost_usd: float


class PackageCard(NamedTuple):
    """A work package as it stands."""

    feature: str
    id: str
    title: str
    state: str
    standing: str  # planned, working, stopped, waiting (for a person), ended
    worker: Worker | None
    round: int
    reason: str
    remediation: str
    since: str
    spent: Spent
    tasks: Mapping[str, str] = {}  # the last status of each, as reported; empty where there is none yet
    jobs: tuple[Job, ...] | None = None
    said: tuple[AgentWords, ...] | None = None  # by its agents, in their last results
    waits_for: tuple[str, ...] | None = None
    is_ready: bool | None = None
    plan: WorkPackage | None = None  # what was loaded
    attempts: tuple[AttemptView, ...] | None = None  # of its contest, if there was one
    saved_tokens: int | None = None  # about so many fewer in the prompts of reviewers, who were shown what changed
    pr_url: str = ""  # of its pull request, where each package has one


class PackagesOf(NamedTuple):
    """The packages of a feature, and how many are in each state."""

    feature: str
    counts: dict[str, int]
    packages: tuple[PackageCard, ...]


class Decision(NamedTuple):
    """Something that waits for a person: what is asked, why, and which orders are allowed."""

    feature: str
    package: str  # empty where it is the feature that waits
    phase: str
    asked: str  # resolve, complete, dispatch or answer
    reason: str
    remediation: str
    orders: tuple[str, ...]  # the commands that are allowed now
    question: str = ""  # the id of what an agent asks, and its reason is the text
    options: tuple[str, ...] = ()  # of the answer, if the agent names some


class RestingAgent(NamedTuple):
    """An agent that waits for the end of a limit of its provider."""

    agent: str
    until: str


class FleetSign(NamedTuple):
    """Whether something is done for a feature of a fleet now."""

    feature: str
    recorded: str  # when its record grew last
    worker: str = ""  # that has a step of it; empty where none has, or that is not known
    seen: str = ""  # when that worker last told the server that it lives
    why: str = ""  # it is not gone on with, as far as that is known


class FleetQueue(NamedTuple):
    """A queue that features wait in, and that no worker serves, or none that takes them: `why`, then."""

    name: str
    since: str
    features: tuple[str, ...]
    why: str = ""


class FleetSigns(NamedTuple):
    """What was known of a fleet's workers when it was looked at."""

    at: str
    bucket: str
    server: str
    unknown: str  # why the server could not say; empty if it did
    features: tuple[FleetSign, ...]  # those that have not ended
    unserved: tuple[FleetQueue, ...]


class Overview(NamedTuple):
    """All features: the one that is asked about, or was moved last, and those beside it."""

    workflow: FeatureCard | None
    features: tuple[PackagesOf, ...]  # those that have packages, the one that is asked about first
    waiting: tuple[Decision, ...]  # for a person, of all features
    blockers: tuple[PackageCard, ...]
    others: tuple[FeatureCard, ...]  # the other workflows that have not ended
    ended: tuple[FeatureCard, ...]
    spent: dict[str, Spent]  # by `feature`, the one that is shown, and `all`
    resting: tuple[RestingAgent, ...]
    hidden: tuple[str, ...] = ()  # what was told about hidden characters in prompts of the feature that is shown
    board: str = ""  # the address of the web board, while one runs
    detail: FeatureView | None = None  # of the feature that is asked for
    overlaps: tuple[FeatureOverlap, ...] = ()  # between features in work
    fleet: FleetSigns | None = None  # where it is a fleet's record that is shown


def open_reader(folder: str) -> Reader | None:
    """The record of the repository around a folder; None if nothing is recorded yet."""
    return read_store(locate(Path(folder), os.environ))


def need_reader(folder: str) -> Reader:
    """The record of the repository around a folder, which must be there."""
    reader = open_reader(folder)
    if reader is None:
        raise ConfigError("nothing is recorded in this repository yet", "phasegate plan load kitty-specs/NNN-name")
    return reader


def feature_named(folder: str, wanted: str) -> str:
    """The feature that a person names: a beginning that only one has is enough. What is unknown is left as it is."""
    reader = open_reader(folder)
    known = reader.features() if reader else []
    found = [slug for slug in known if slug.startswith(wanted)] if wanted not in known else [wanted]
    if len(found) > 1:
        raise ConfigError(f"several features begin with {wanted}", f"choose one: {', '.join(sorted(found))}")
    return found[0] if found else wanted


def overview(reader: Reader | None, folder: str, feature: str | None = None) -> Overview:
    """Where everything stands; `feature` is shown first, else the active workflow that was moved last."""
    rows = reader.workflows() if reader else []
    cards = [feature_card(reader, row) for row in rows] if reader else []
    shown = _shown(reader, cards, folder, feature)
    boards = _boards(reader, feature or (shown.feature if shown else ""))
    if feature and not shown and all(feature != board.feature for board in boards):
        raise unrecorded(feature, reader.features() if reader else ())
    blockers = tuple(one for board in boards for one in board.packages if one.state == "BLOCKED")
    asked = unanswered(reader) if reader else ()
    waiting = (*_decisions(cards, blockers), *map(_question_decision, asked))
    others = tuple(card for card in cards if card.is_active and (shown is None or card.feature != shown.feature))
    ended = tuple(card for card in cards if not card.is_active)
    first = shown.feature if shown else next((board.feature for board in boards), None)
    told = _hidden_told(reader, first) if reader and first else ()
    spent = _spent(reader, first)
    found = Overview(shown, boards, waiting, blockers, others, ended, spent, _resting(reader), told, board_address())
    if reader and reader.location.copy:
        return found._replace(fleet=fleet_signs(reader))
    return found._replace(overlaps=() if feature else _overlaps(folder, cards))


def fleet_signs(reader: Reader) -> FleetSigns | None:
    """What was known of the workers of a fleet when its record was copied; None where none is shown."""
    copy = reader.location.copy
    content = read_plain(copy / SIGNS, LARGEST_SIGNS) if copy else None
    found = parse_json(content.decode()) if content else None
    if not isinstance(found, list):
        return None
    at, bucket, server, unknown, features, queues = found
    unserved = tuple(FleetQueue(name, since, tuple(waiting), *why) for name, since, waiting, *why in queues)
    return FleetSigns(at, bucket, server, unknown, tuple(FleetSign(*one) for one in features), unserved)


def _overlaps(folder: str, cards: Iterable[FeatureCard]) -> tuple[FeatureOverlap, ...]:
    active = {card.feature: card.base for card in cards if card.is_active}
    if len(active) < 2:
        return ()
    from phasegate.engine.views.overlap import overlaps  # git is asked only where there can be any

    return overlaps(folder, active)


def _hidden_told(reader: Reader, feature: str) -> tuple[str, ...]:
    """Each place once, with the package that it was found for."""
    said = (parse_json(recorded.payload.decode("utf-8", "replace")) for recorded in reader.events_of(feature, NOTICE))
    found = ((str(one.get("work", "")), str(one.get("text", ""))) for one in said if isinstance(one, dict))
    texts = (f"{work}: {text}" if work else text for work, text in found if text.startswith(HIDDEN_TOLD))
    return tuple(dict.fromkeys(texts))


def board_address() -> str:
    """Where this user's board can be reached; empty if none runs."""
    content = read_plain(state_home(os.environ) / BOARD, LARGEST_BYTES)
    holder = signed_by(content) if content else None
    return holder.command if holder and is_alive(holder) else ""


def _decisions(cards: Iterable[FeatureCard], blockers: Iterable[PackageCard]) -> Iterator[Decision]:
    """A package of an active workflow is none of its own: its feature waits when nothing else can be done."""
    cards = [*cards]
    for one in cards:
        if one.standing == "waiting":
            asked = "resolve" if one.stage == "blocked" else "complete"
            position = [phase.key for phase in one.phases].index(one.phase)
            orders = orders_while_waiting(one.stage, position, one.merged)
            yield Decision(one.feature, "", one.phase, asked, one.reason, one.remediation, orders)
    active = {card.feature for card in cards if card.is_active}
    for row in blockers:
        if row.feature not in active:
            yield Decision(row.feature, row.id, "", "dispatch", row.reason, row.remediation, ("dispatch",))


def _question_decision(one: AgentQuestion) -> Decision:
    return Decision(one.feature, one.work, "", "answer", one.text, "", ("answer",), one.id, one.options)


def stuck_packages(reader: Reader) -> tuple[Decision, ...]:
    """The packages outside of a workflow that are blocked: a dispatch by hand waits for a person too."""
    cards = [feature_card(reader, row) for row in reader.workflows()]
    blockers = (one for board in _boards(reader, "") for one in board.packages if one.state == "BLOCKED")
    return tuple(one for one in _decisions(cards, blockers) if one.asked == "dispatch")


def _resting(reader: Reader | None) -> tuple[RestingAgent, ...]:
    found = reader.resting(time.time()) if reader else {}
    moments = {agent: time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(until_s)) for agent, until_s in found.items()}
    return tuple(RestingAgent(agent, moment) for agent, moment in moments.items())


def feature_card(reader: Reader, row: WorkflowRow) -> FeatureCard:
    """A feature that has a workflow."""
    keys, worker = row.phases.split(), worker_on(reader, row.feature)
    outcomes = {gate.phase: gate.outcome for gate in reader.gates(row.feature)}
    standing = standing_of(row.stage, is_last_phase=row.position == len(keys) - 1, is_held=worker is not None)
    return FeatureCard(
        row.feature,
        row.type,
        row.description,
        standing,
        worker,
        row.stage,
        row.round,
        (_failure(reader, row.feature) if standing == "stopped" else "") or row.reason,
        row.remediation,
        keys[row.position],
        phases_of(keys, row.position, row.stage, outcomes),
        row.base,
        row.merged,
    )


def _failure(reader: Reader, feature: str) -> str:
    """Why the last run ended, if that is the last that is on record."""
    for last in reader.events_before(LAST, 1, feature):
        said = parse_json(last.payload.decode()) if last.kind == NOTICE else None
        text = str(said.get("text", "")) if isinstance(said, dict) else ""
        return text if text.startswith(RUN_FAILED) else ""
    return ""


def waiting_features(reader: Reader) -> list[str]:
    """The features that wait for a person's decision, the one that was moved last first."""
    return [row.feature for row in reader.workflows() if _waits(reader, row)]


def _waits(reader: Reader, row: WorkflowRow) -> bool:
    is_last = row.position == len(row.phases.split()) - 1
    waits = standing_of(row.stage, is_last_phase=is_last, is_held=False) == "waiting"
    return waits and worker_on(reader, row.feature) is None


def worker_on(reader: Reader, feature: str, package: str = "") -> Worker | None:
    """The process that works on a feature, or on one of its packages; None if none does. No lock is taken.

    Who gives an order does not work on it: a page would offer to stop that, and take the button away again.
    """
    if reader.location.copy:
        signs = fleet_signs(reader) if not package else None
        found = [one for one in (signs.features if signs else ()) if one.feature == feature and one.worker]
        return Worker(0, found[0].worker, found[0].seen) if found else None
    holder = feature_holder(reader.location.locks, f"{feature}-{package}" if package else feature)
    if holder is None or holder.command.partition(" ")[0] in ORDERS:
        return None
    return Worker(holder.pid, holder.command, holder.since)


def features_of(reader: Reader, feature: str | None = None) -> list[str]:
    """The features on record, the one with the newest event first; or the one that is asked for, which must be."""
    known = reader.features()
    if feature is not None and feature not in known:
        raise unrecorded(feature, known)
    return known if feature is None else [feature]


def unrecorded(feature: str, known: Iterable[str]) -> ConfigError:
    """The refusal of a feature that nothing is known of."""
    names = ", ".join(sorted(name for name in known if name))
    return ConfigError(f"nothing is recorded of feature {feature}", f"known are: {names or 'none yet'}")


def package_cards(reader: Reader, feature: str, *, wanted: str | None = None) -> tuple[PackageCard, ...]:
    """The packages of a feature by number, or the wanted one."""
    rows = [row for row in reader.packages(feature) if wanted in (None, row.id)]
    is_held, spent = worker_on(reader, feature) is not None, reader.spent_by_package(feature)
    names = locked(reader.location.locks)
    in_work = {row.id for row in rows if row.state in IN_WORK and f"{feature}-{row.id}" in names}
    workers = {id_: worker_on(reader, feature, id_) for id_ in in_work}
    ordered = sorted(rows, key=lambda row: (len(row.id), row.id))
    return tuple(_package_card(row, workers.get(row.id), spent.get(row.id, Spent()), is_held) for row in ordered)


def with_jobs(reader: Reader, card: PackageCard) -> PackageCard:
    """A package with all runs of agents for it, and what these said."""
    from phasegate.engine.views.claims import pull_url_of, words_for  # decodes: more than a list of packages is worth

    jobs = tuple(job for job in reader.jobs(card.feature) if job.wp == card.id)
    said, url = words_for(reader, card.feature, card.id), pull_url_of(reader, card.feature, card.id)
    return card._replace(jobs=jobs, said=said, pr_url=url)


def find_cards(reader: Reader | None, wanted: str, feature: str | None = None) -> tuple[PackageCard, ...]:
    """The packages of that id with their jobs, one in each feature that has it."""
    slugs = features_of(reader, feature) if reader else []
    cards = [card for slug in slugs if reader for card in package_cards(reader, slug, wanted=wanted)]
    if reader is None or not cards:
        raise ConfigError(f"there is no package {wanted}", "phasegate package list")
    return tuple(with_jobs(reader, card) for card in cards)


def _package_card(row: Package, worker: Worker | None, spent: Spent, is_held: bool) -> PackageCard:
    standing = standing_of_package(row.state, is_held=is_held or worker is not None)
    texts = (row.round, row.reason, row.remediation, row.since)
    tasks = from_line(row.tasks)
    return PackageCard(row.feature, row.id, row.title, row.state, standing, worker, *texts, spent, tasks)


def _shown(reader: Reader | None, cards: Iterable[FeatureCard], folder: str, feature: str | None) -> FeatureCard | None:
    """The workflow that is asked about, else the active one that was moved last; else one that another tool wrote."""
    cards = [*cards]
    chosen = [card for card in cards if (card.feature == feature if feature else card.stage not in ENDED)]
    if chosen:
        return chosen[0]
    if reader and reader.location.copy:
        return None
    found = workflow_of(active_state(folder))
    # What the record knows to be over is not active, whatever an old view says.
    is_known = found is not None and any(card.feature == found.feature for card in cards)
    return found if found and not is_known and feature in (None, found.feature) else None


def _boards(reader: Reader | None, first: str) -> tuple[PackagesOf, ...]:
    return tuple(_each_board(reader, first)) if reader else ()


def _each_board(reader: Reader, first: str) -> Iterator[PackagesOf]:
    for slug in sorted(reader.features(), key=lambda slug: slug != first):
        if cards := package_cards(reader, slug):
            yield PackagesOf(slug, counts(cards), cards)


def _spent(reader: Reader | None, feature: str | None) -> dict[str, Spent]:
    if reader is None:
        return {"all": Spent()}
    own = {} if feature is None else {"feature": reader.spent(feature)}
    return {**own, "all": reader.spent()}
