"""Execute the user's orders: start a workflow and advance, retry, resolve or cancel it.

Every interface calls these functions.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

from phasegate.config.settings import AgentSettings
from phasegate.core.display.status import format_next_commands
from phasegate.core.machine.feature_events import (
    AnyFeatureEvent,
    FeatureLimits,
    GateChecked,
    PhasePlan,
    Started,
)
from phasegate.core.machine.feature_machine import apply_or_refuse
from phasegate.core.machine.feature_outcomes import evaluate_phase_gate
from phasegate.core.machine.feature_state import STEPS_BY_WORK, Feature, Step
from phasegate.core.machine.order_events import build_order_event
from phasegate.core.machine.package_events import MAX_LOSSES
from phasegate.core.machine.size_estimate import fold_plan
from phasegate.core.text.finding import suggest_closest
from phasegate.core.text.wording import pluralize
from phasegate.core.workflow import phase_transitions
from phasegate.core.workflow.forecast import PastRun, describe_forecast
from phasegate.core.workflow.gate import GateResult
from phasegate.core.workflow.orders import ORDERS
from phasegate.core.workflow.origin import UNKNOWN_ORIGIN, OrderOrigin
from phasegate.core.workflow.phase_transitions import Refusal, Stage
from phasegate.core.workflow.phases import PhaseWork, get_phase, required_artifacts
from phasegate.core.workflow.workflow_phases import WORKFLOWS, is_phase_named, workflow_noun
from phasegate.engine.drive.recheck import describe_cleared_blocker, refuse_uncommitted_files
from phasegate.engine.drive.run_feature import lock_feature_journal, merges_at_forge
from phasegate.engine.journal.feature import (
    FeatureJournal,
    open_feature_journal,
    read_feature,
    read_workflows,
)
from phasegate.engine.project.agents import (
    choose_agent,
    find_startable_agents,
    list_known_agents,
)
from phasegate.engine.project.ports import RecordReader, RunRecord
from phasegate.engine.project.project import Project
from phasegate.engine.steps.feature_merge import (
    list_feature_branches,
    list_work_names,
    remove_checkouts,
)
from phasegate.engine.steps.feature_steps import FeatureSteps
from phasegate.engine.steps.workplace import current_branch
from phasegate.errors import ConfigError, StateConflict
from phasegate.storage.artifacts import list_features
from phasegate.storage.lock import feature_lock, named_lock
from phasegate.storage.repository_kind import find_repository
from phasegate.storage.state_view import write_state_view
from phasegate.workspace.checkout_lifecycle import ensure_feature_branch
from phasegate.workspace.repository.refs import BRANCH_PREFIX
from phasegate.workspace.repository.repository import read_refs

_MAX_SLUG_WORDS = 5
_MAX_SLUG_CHARS = 48
# Newer runs say more about the next one
_MAX_PAST_RUNS = 10
# An implementer and a reviewer
_RUNS_PER_PACKAGE = 2
# Texts of our own hints
_PLACEHOLDERS = ("how", "...", "your decision")


def start_workflow(
    project: Project,
    store: RunRecord,
    type_: str,
    description: str,
    agent: str | None = None,
    by: OrderOrigin = UNKNOWN_ORIGIN,
    *,
    runs_elsewhere: bool = False,
) -> str:
    """Start a workflow; return the slug of its feature.

    `runs_elsewhere`: other machines run it, so the programs of its agents need not be here.
    """
    phases, noun = _find_phases(project, type_)
    description = description.strip()
    if not description and workflow_noun(type_, noun) is not None:
        raise ConfigError(
            f"a {type_} needs a description", f'phasegate run {type_} "what you want"'
        )

    plan = tuple(_plan_phase(project, key, phases) for key in phases)
    if sum(phase.work is PhaseWork.PACKAGES for phase in plan) > 1:
        raise ConfigError(f"{type_} has two work package phases", "keep one of them")

    agents = list_known_agents(project) if runs_elsewhere else find_startable_agents(project)
    _choose_agents(project, plan, agent, agents)
    base = current_branch(project)
    run = project.config.run
    retries = max(agent.max_retries for agent in agents.values())
    limits = FeatureLimits(
        revisions=run.max_revisions, retries=retries, parallel=run.parallel, losses=MAX_LOSSES
    )
    with named_lock(project.location.locks_folder, "start"):
        slug = _make_free_slug(project, store, description or type_)
        with feature_lock(project.location.locks_folder, slug, f"start {type_}", project.now()):
            journal = open_feature_journal(project, store, slug)
            _record_order(
                journal,
                Started(
                    feature=slug,
                    type=type_,
                    plan=plan,
                    base=base,
                    description=description,
                    noun=noun,
                    limits=limits,
                    by=by,
                    fits_size=run.fit_to_size,
                ),
            )

            store.anchor()

    return slug


def select_feature(project: Project, store: RunRecord, feature: str | None) -> str:
    """Return the feature that an order is for.

    It is the requested one, else the only active one, else the one whose branch is checked out.
    """
    workflows = read_workflows(store)
    active = [one.feature for one in workflows if one.is_active]
    if feature is None and len(active) > 1:
        branch = find_repository(str(project.root)).branch or ""
        feature = next((slug for slug in active if branch == f"feat/{slug}"), None)
    chosen = phase_transitions.choose_workflow(workflows, feature)
    if isinstance(chosen, Refusal):
        if workflows and not any(one.is_active for one in workflows):
            _refresh_state_view(project, store, workflows[0].feature)
        raise StateConflict(chosen.reason, chosen.hint)

    return chosen.feature


def _refresh_state_view(project: Project, store: RunRecord, slug: str) -> None:
    """Rewrite state.json: a crash after the last append leaves an ended workflow in it."""
    with feature_lock(project.location.locks_folder, slug, "show its end", project.now()):
        feature = read_feature(store, slug)
        write_state_view(project.root, feature.workflow if feature else None)


def _find_phase_key(reader: RecordReader, slug: str, phase: str) -> str:
    feature = read_feature(reader, slug)
    keys = feature.workflow.phases if feature else ()
    return next((key for key in keys if is_phase_named(key, phase)), phase)


class OrderRequest(NamedTuple):
    """An order by name with the user's text; `phase` is the target of `back`."""

    name: str
    text: str = ""
    phase: str = ""


def execute_order(
    project: Project,
    store: RunRecord,
    slug: str,
    order: OrderRequest,
    by: OrderOrigin = UNKNOWN_ORIGIN,
    seen_seq: int | None = None,
) -> Feature:
    """Execute an order of `ORDERS`. After `complete`, the next run archives and merges.

    `seen_seq` is the last event that the user has seen: the order is refused if the feature has
    changed since.
    """
    if order.name not in ORDERS:
        raise ConfigError(f"unknown order {order.name!r}", f"available: {', '.join(ORDERS)}")

    # A hint that was pasted as it is must not become a decision in the merge message
    if order.name == "resolve" and order.text.strip() in _PLACEHOLDERS:
        raise ConfigError(
            "write your decision in place of the placeholder", 'phasegate resolve "your decision"'
        )

    event = build_order_event(
        order.name,
        order.text,
        _find_phase_key(store, slug, order.phase),
        by,
        at_forge=order.name == "complete" and merges_at_forge(project),
    )
    before = read_feature(store, slug)
    if order.name == "complete" and before is not None and not merges_at_forge(project):
        refuse_uncommitted_files(project, before.base)
    feature = _lock_and_record(project, store, slug, order.name, event, seen_seq)

    if order.name == "cancel":
        remove_checkouts(project, slug, list_work_names(feature, store.packages(slug)))

    return feature


def list_kept_branches(project: Project, reader: RecordReader, feature: Feature) -> list[str]:
    """Return the branches that are left after a feature was cancelled."""
    slug = feature.workflow.feature
    return list_feature_branches(project, slug, list_work_names(feature, reader.packages(slug)))


def add_notice(project: Project, store: RunRecord, slug: str, text: str) -> None:
    """Record a notice for the user about a feature."""
    with lock_feature_journal(project, store, slug, "note") as journal:
        journal.notify(text)


def refuse_if_incomplete(project: Project, reader: RecordReader, slug: str) -> None:
    """Raise StateConflict if a workflow cannot be completed yet, before an agent is started."""
    feature = read_feature(reader, slug)
    if feature is None:
        raise StateConflict(f"feature {slug} has no workflow", "phasegate status --all")

    workflow = feature.workflow
    if workflow.stage is Stage.BLOCKED and workflow.blocked_at is Stage.GATE_PASSED:
        # The gate has passed; something stopped the merge
        if not describe_cleared_blocker(project, reader, feature):
            raise StateConflict(f"{slug} is blocked: {workflow.reason}", feature.remediation)
        return

    refused = phase_transitions.complete(workflow)
    if isinstance(refused, Refusal):
        raise make_refusal_error(refused, feature)
    if workflow.merges and not merges_at_forge(project):
        refuse_uncommitted_files(project, feature.base)


def check_gate(project: Project, store: RunRecord, slug: str) -> tuple[Feature, GateResult]:
    """Check the gate of the current phase.

    The result is recorded only if the work of the phase is done.
    """
    with lock_feature_journal(project, store, slug, "gate") as journal:
        feature = journal.state
        # The feature may not have run yet
        ensure_feature_branch(project.repository, slug, feature.base)
        checked = FeatureSteps(project, slug).check_gate(feature)
        (event,) = checked.events
        assert isinstance(event, GateChecked)
        result = evaluate_phase_gate(feature, event)
        if feature.workflow.stage is Stage.WORKING and feature.todo[:1] == (Step.GATE,):
            journal.queue_notices(*checked.notices)
            feature = journal.record(event, rows=checked.rows)

        return feature, result


def describe_workload(feature: Feature) -> str:
    """Describe the number of phases and agent runs of a workflow, and its limits."""
    runs = _count_minimum_runs(feature)
    more = ""
    if _has_packages(feature):
        more = f", and at least {_RUNS_PER_PACKAGE} for each work package"

    limits = feature.limits
    return (
        f"{pluralize(len(feature.plan), 'phase')}; "
        f"at least {pluralize(runs, 'agent run')}{more}. "
        f"At most {limits.revisions} rounds per phase, {limits.retries} retries per run, "
        f"{limits.parallel} packages in parallel."
    )


def _count_minimum_runs(feature: Feature) -> int:
    """Return the minimum number of agent runs outside the packages: no revision, smallest plan."""
    plan = feature.plan
    if feature.fits_size:
        # Green commands need no reviewer, and a single package is reviewed once
        waived = (PhaseWork.COMMANDS, *([PhaseWork.REVIEW] if _has_packages(feature) else []))
        plan = tuple(phase for phase in fold_plan(plan) or plan if phase.work not in waived)

    agents = (Step.WRITE, Step.CRITICISE, Step.REVIEW)
    steps = (step for phase in plan for step in STEPS_BY_WORK[phase.work])
    return feature.workflow.merges + sum(step in agents for step in steps)


def _has_packages(feature: Feature) -> bool:
    return any(phase.work is PhaseWork.PACKAGES for phase in feature.plan)


def forecast_workload(reader: RecordReader, feature: Feature) -> str:
    """Forecast the agent runs and tokens of a feature from completed ones of the same type."""
    type_ = feature.workflow.type
    past = []
    for row in reader.workflows():
        if row.type == type_ and row.stage == Stage.COMPLETED:
            jobs = reader.jobs(row.feature)
            past.append(PastRun(len(jobs), sum(job.tokens for job in jobs)))

    least = _count_minimum_runs(feature)
    if _has_packages(feature):
        least += _RUNS_PER_PACKAGE
    return describe_forecast(past[:_MAX_PAST_RUNS], type_, max(1, least))


def _lock_and_record(
    project: Project,
    store: RunRecord,
    slug: str,
    command: str,
    event: AnyFeatureEvent,
    seen_seq: int | None = None,
) -> Feature:
    with lock_feature_journal(project, store, slug, command, seen_seq) as journal:
        return _record_order(journal, event)


def _record_order(journal: FeatureJournal, event: AnyFeatureEvent) -> Feature:
    feature = journal.state if journal.is_started else None
    after = apply_or_refuse(feature, event)
    if isinstance(after, Refusal):
        raise make_refusal_error(after, feature)
    return journal.record(event)


def make_refusal_error(refusal: Refusal, feature: Feature | None) -> StateConflict:
    """Return the error about a refused order, with the commands that are possible instead."""
    commands = ""
    if feature is not None:
        commands = format_next_commands(
            str(feature.workflow.stage),
            is_last_phase=feature.workflow.is_last_phase,
            remediation=feature.remediation,
            command_suffix=f" --feature {feature.workflow.feature}",
        )
    return StateConflict(refusal.reason, refusal.hint or commands or "phasegate status")


def _find_phases(project: Project, type_: str) -> tuple[tuple[str, ...], str | None]:
    """Return the phases of a workflow type, and its noun if the project defines the type."""
    own = project.config.workflows.get(type_)
    if own is not None:
        return own.phases, own.noun

    if type_ not in WORKFLOWS:
        known = (*WORKFLOWS, *project.config.workflows)
        raise ConfigError(
            f"unknown workflow {type_!r}{suggest_closest(type_, known)}",
            f"available: {', '.join(known)}",
        )

    return WORKFLOWS[type_], None


def _plan_phase(project: Project, key: str, phases: tuple[str, ...]) -> PhasePlan:
    """Return the work, artifacts and commands of a phase, as shipped or as configured."""
    shipped = get_phase(key)
    own = project.config.phases.get(key)
    artifacts = required_artifacts(key, phases, own.required_artifacts if own is not None else None)
    if own is not None and own.commands is not None:
        commands = own.commands
    else:
        commands = shipped.commands

    if commands and shipped.work is PhaseWork.REVIEW:
        work = PhaseWork.COMMANDS
    else:
        work = shipped.work

    return PhasePlan(key, work, artifacts, commands)


def choose_workflow_agents(
    project: Project, type_: str, agent: str | None
) -> Mapping[str, AgentSettings]:
    """Return the agents of a workflow by name; raise ConfigError if a role has none."""
    phases, _ = _find_phases(project, type_)
    plan = tuple(_plan_phase(project, key, phases) for key in phases)
    return _choose_agents(project, plan, agent, find_startable_agents(project))


def _choose_agents(
    project: Project,
    plan: tuple[PhasePlan, ...],
    agent: str | None,
    available: Mapping[str, AgentSettings],
) -> Mapping[str, AgentSettings]:
    """Choose an agent for every role of the plan."""
    roles = {
        PhaseWork.PLANNING: ("plan", "challenge"),
        PhaseWork.PACKAGES: ("implement", "review"),
        PhaseWork.REVIEW: ("review",),
        PhaseWork.COMMANDS: ("review",),
    }

    chosen = [
        choose_agent(project, role, phase.key, agent, agents=available)
        for phase in plan
        for role in roles[phase.work]
    ]
    return {one.name: one.settings for one in chosen}


def _make_free_slug(project: Project, store: RunRecord, description: str) -> str:
    """Make a slug from the next free number and the first words of the description."""
    names = [
        *store.features(),
        *list_features(project.root, specs_folder=project.config.paths.features),
    ]
    names += [
        ref.removeprefix(f"{BRANCH_PREFIX}feat/")
        for ref in read_refs(project.repository, f"{BRANCH_PREFIX}feat/")
    ]
    numbers = [int(found[1]) for name in names if (found := re.match(r"([0-9]{3,6})-", name))]
    plain = unicodedata.normalize("NFKD", description).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain)[:_MAX_SLUG_WORDS] or ["feature"]
    name = "-".join(words)[:_MAX_SLUG_CHARS].rstrip("-")
    number = max(numbers, default=0) + 1
    while not store.reserve_number(number, f"{number:03}-{name}"):
        number += 1

    return f"{number:03}-{name}"
