"""What a person can order of a workflow: start it, and take each of its steps by hand. Every door calls these."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from phasegate.core.machine.feature_events import (
    Advanced,
    Cancelled,
    CompletionAsked,
    Escalated,
    FeatureLimits,
    Happened,
    PhasePlan,
    Resolved,
    Retried,
    Started,
    WentBack,
)
from phasegate.core.machine.feature_machine import take
from phasegate.core.machine.feature_outcomes import judged
from phasegate.core.machine.feature_state import STEPS, Feature, Step
from phasegate.core.machine.package_events import MOST_LOSSES
from phasegate.core.text.finding import closest
from phasegate.core.workflow import lifecycle
from phasegate.core.workflow.gate import GateResult
from phasegate.core.workflow.lifecycle import Refusal, Stage
from phasegate.core.workflow.origin import NOT_KEPT, By
from phasegate.core.workflow.phases import Work, phase_of, required_artifacts
from phasegate.core.workflow.workflows import WORKFLOWS, is_phase_named, workflow_noun
from phasegate.engine.drive.feature import at_work, merges_at_forge
from phasegate.engine.journal.feature import open_feature_journal, read_feature, recorded_workflows
from phasegate.engine.journal.unit_journal import WorkJournal
from phasegate.engine.project.agents import member_for, staff
from phasegate.engine.project.ports import RecordReader, RunRecord
from phasegate.engine.project.project import Project
from phasegate.engine.steps.feature_merge import feature_branches, put_away, works_of
from phasegate.engine.steps.feature_steps import PhaseSteps
from phasegate.engine.steps.workplace import current_branch
from phasegate.errors import ConfigError, StateConflict
from phasegate.storage.artifacts import list_features
from phasegate.storage.lock import feature_lock, repository_lock
from phasegate.storage.state_view import write_view
from phasegate.workspace.checkout_lifecycle import open_feature
from phasegate.workspace.refs import BRANCHES
from phasegate.workspace.repository import read_refs

NEED_TEXT = ("resolve", "back", "escalate", "cancel")
_WORDS_IN_A_SLUG = 5
_LONGEST_SLUG = 48


def start(
    project: Project, store: RunRecord, type_: str, description: str, agent: str | None = None, by: By = NOT_KEPT
) -> str:
    """Begin a workflow; the slug of its feature."""
    phases, noun = _phases(project, type_)
    description = description.strip()
    if not description and workflow_noun(type_, noun) is not None:
        raise ConfigError(f"a {type_} needs a description", f'phasegate run {type_} "what you want"')
    plan = tuple(_phase_plan(project, key, phases) for key in phases)
    if sum(phase.work is Work.PACKAGES for phase in plan) > 1:
        raise ConfigError(f"{type_} has two phases of work packages", "keep one of them in its phases")
    _refuse_without_agents(project, plan, agent)
    base = current_branch(project)
    run = project.config.run
    retries = max(agent.max_retries for agent in staff(project).values())
    limits = FeatureLimits(run.max_revisions, retries, run.parallel, losses=MOST_LOSSES)
    with repository_lock(project.location.locks, "start"):
        slug = _free_slug(project, store, description or type_)
        with feature_lock(project.location.locks, slug, f"start {type_}", project.now()):
            journal = open_feature_journal(project, store, slug)
            _order(journal, Started(slug, type_, plan, base, description, noun, limits, by))
            store.anchor()
    return slug


def chosen(project: Project, store: RunRecord, feature: str | None) -> str:
    """The feature that an order is about: the one asked for, else the only one in work."""
    workflows = recorded_workflows(store)
    found = lifecycle.choose(workflows, feature)
    if isinstance(found, Refusal):
        if workflows and not any(one.active for one in workflows):
            _show_end(project, store, workflows[0].feature)
        raise StateConflict(found.reason, found.hint)
    return found.feature


def _show_end(project: Project, store: RunRecord, slug: str) -> None:
    """A death between the last record and its view leaves a workflow in state.json that nobody would go on with."""
    with feature_lock(project.location.locks, slug, "show its end", project.now()):
        feature = read_feature(store, slug)
        write_view(project.root, feature.workflow if feature else None)


def advance(project: Project, store: RunRecord, slug: str, by: By = NOT_KEPT) -> Feature:
    """On to the next phase, from a passed gate."""
    return _ordered(project, store, slug, "advance", Advanced(by))


def retry(project: Project, store: RunRecord, slug: str, by: By = NOT_KEPT) -> Feature:
    """One more round of the phase, after a failed gate."""
    return _ordered(project, store, slug, "retry", Retried(by))


def escalate(project: Project, store: RunRecord, slug: str, why: str, by: By = NOT_KEPT) -> Feature:
    """Stop for a person."""
    return _ordered(project, store, slug, "escalate", Escalated(why, by=by))


def resolve(project: Project, store: RunRecord, slug: str, how: str, by: By = NOT_KEPT) -> Feature:
    """A blocker is dealt with: the blocked step can be tried again."""
    return _ordered(project, store, slug, "resolve", Resolved(how, by))


def back(project: Project, store: RunRecord, slug: str, phase: str, why: str, by: By = NOT_KEPT) -> Feature:
    """To an earlier phase, by its key, number or name; its gate and those behind it must pass again."""
    return _ordered(project, store, slug, "back", WentBack(_key_of(store, slug, phase), why, by))


def _key_of(reader: RecordReader, slug: str, phase: str) -> str:
    feature = read_feature(reader, slug)
    keys = feature.workflow.phases if feature else ()
    return next((key for key in keys if is_phase_named(key, phase)), phase)


def cancel(project: Project, store: RunRecord, slug: str, reason: str, by: By = NOT_KEPT) -> tuple[str, ...]:
    """End a workflow without a merge; the branches that are kept."""
    feature = _ordered(project, store, slug, "cancel", Cancelled(reason, by))
    works = works_of(feature)
    put_away(project, slug, works)
    return tuple(feature_branches(project, slug, works))


class GivenOrder(NamedTuple):
    """An order by its name, with what a person says to it; `phase` is where `back` goes."""

    name: str
    text: str = ""
    phase: str = ""


def give(
    project: Project, store: RunRecord, slug: str, order: GivenOrder, by: By = NOT_KEPT, seen: int | None = None
) -> None:
    """Any order of a person; after `complete` the next run archives and merges.

    `seen` is the feature's last event that they decided on: what has moved on since is not touched.
    """
    events: dict[str, Happened] = {
        "advance": Advanced(by),
        "retry": Retried(by),
        "resolve": Resolved(order.text, by),
        "back": WentBack(_key_of(store, slug, order.phase), order.text, by),
        "escalate": Escalated(order.text, by=by),
        "cancel": Cancelled(order.text, by),
        "complete": CompletionAsked(by, merges_at_forge(project)),
    }
    if order.name not in events:
        raise ConfigError(f"there is no order {order.name!r}", f"known are: {', '.join(events)}")
    if order.name in NEED_TEXT and not order.text.strip():
        raise ConfigError(f"{order.name} needs a text", "say how it was resolved, or why; it is kept on record")
    feature = _ordered(project, store, slug, order.name, events[order.name], seen)
    if order.name == "cancel":
        put_away(project, slug, works_of(feature))


def note(project: Project, store: RunRecord, slug: str, text: str) -> None:
    """Put on record what a person should know of a feature."""
    with at_work(project, store, slug, "note") as journal:
        journal.tell(text)


def refuse_to_complete(reader: RecordReader, slug: str) -> None:
    """Say what is missing before a workflow can be completed, if something is."""
    feature = read_feature(reader, slug)
    refused = lifecycle.complete(feature.workflow) if feature else Refusal(f"feature {slug} has no workflow")
    if isinstance(refused, Refusal):
        raise StateConflict(refused.reason, refused.hint or "phasegate status shows what is missing")


def check_gate(project: Project, store: RunRecord, slug: str) -> tuple[Feature, GateResult]:
    """Check the gate of the current phase. It is on record only when the work of the phase is done."""
    with at_work(project, store, slug, "gate") as journal:
        feature = journal.state
        open_feature(project.repository, slug, feature.base)  # nothing may have been carried out yet
        found = PhaseSteps(project, slug).at_the_gate(feature)
        result = judged(feature, found)
        if feature.workflow.stage is Stage.WORKING and feature.todo[:1] == (Step.GATE,):
            feature = journal.record(found)
        return feature, result


def outlook(feature: Feature) -> str:
    """How many phases and agent runs lie ahead, and the limits."""
    runs = sum(_runs(phase) for phase in feature.plan) + feature.workflow.merges
    packages = any(phase.work is Work.PACKAGES for phase in feature.plan)
    more = ", and at least 2 for each work package" if packages else ""
    limits = feature.limits
    return (
        f"{_counted(len(feature.plan), 'phase')}; at least {_counted(runs, 'agent run')}{more}. "
        f"At most {limits.revisions} rounds a phase, {limits.retries} retries a run, "
        f"{limits.parallel} packages at once."
    )


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _runs(phase: PhasePlan) -> int:
    agents = (Step.WRITE, Step.CRITICISE, Step.REVIEW)
    return sum(step in agents for step in STEPS[phase.work])


def _ordered(
    project: Project, store: RunRecord, slug: str, verb: str, event: Happened, seen: int | None = None
) -> Feature:
    with at_work(project, store, slug, verb, seen) as journal:
        return _order(journal, event)


def _order(journal: WorkJournal[Feature, Happened], event: Happened) -> Feature:
    after = take(journal.state if journal.is_begun else None, event)
    if isinstance(after, Refusal):
        raise StateConflict(after.reason, after.hint or "phasegate status shows where it stands")
    return journal.record(event)


def _phases(project: Project, type_: str) -> tuple[tuple[str, ...], str | None]:
    own = project.config.workflows.get(type_)
    if own is not None:
        return own.phases, own.noun
    if type_ not in WORKFLOWS:
        known = (*WORKFLOWS, *project.config.workflows)
        raise ConfigError(f"there is no workflow {type_!r}{closest(type_, known)}", f"known are: {', '.join(known)}")
    return WORKFLOWS[type_], None


def _phase_plan(project: Project, key: str, phases: tuple[str, ...]) -> PhasePlan:
    """What a phase does and demands: as shipped, or as the person configured it."""
    shipped, own = phase_of(key), project.config.phases.get(key)
    artifacts = required_artifacts(key, phases, own.artifacts if own is not None else None)
    commands = own.commands if own is not None and own.commands is not None else shipped.commands
    work = Work.COMMANDS if commands and shipped.work is Work.REVIEW else shipped.work
    return PhasePlan(key, work, artifacts, commands)


def _refuse_without_agents(project: Project, plan: tuple[PhasePlan, ...], agent: str | None) -> None:
    """Before anything begins, there is somebody for each role."""
    roles = {
        Work.PLANNING: ("plan", "challenge"),
        Work.PACKAGES: ("implement", "review"),
        Work.REVIEW: ("review",),
        Work.COMMANDS: ("review",),
    }
    for phase in plan:
        for role in roles[phase.work]:
            member_for(project, role, phase.key, agent)


def _free_slug(project: Project, reader: RecordReader, description: str) -> str:
    """The next number, and the first words of the description."""
    taken = [*reader.features(), *list_features(project.root, below=project.config.paths.features)]
    taken += [ref.removeprefix(f"{BRANCHES}feat/") for ref in read_refs(project.repository, f"{BRANCHES}feat/")]
    numbers = [int(found[1]) for name in taken if (found := re.match(r"([0-9]{3,6})-", name))]
    plain = unicodedata.normalize("NFKD", description).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain)[:_WORDS_IN_A_SLUG] or ["feature"]
    return f"{max(numbers, default=0) + 1:03}-{'-'.join(words)[:_LONGEST_SLUG].rstrip('-')}"
