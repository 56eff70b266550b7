"""Change a requirement of a running feature: show the impact, then plan affected packages again."""

from __future__ import annotations

import msgspec

from phasegate.core.machine.feature_events import Amended
from phasegate.core.machine.feature_machine import apply_or_refuse
from phasegate.core.machine.feature_state import Feature
from phasegate.core.plan.acceptance import AcceptanceSeal
from phasegate.core.plan.consistency import SPEC_FILE, TASKS_FILE
from phasegate.core.plan.tasks import parse_tasks
from phasegate.core.specs.amend import AmendedSpec, amend_spec
from phasegate.core.specs.deltas import find_requirement
from phasegate.core.specs.spec_file import MalformedSpec, compute_revision
from phasegate.core.text.wording import pluralize
from phasegate.core.workflow.origin import OrderOrigin
from phasegate.core.workflow.phase_transitions import Refusal
from phasegate.engine.drive.orders import make_refusal_error
from phasegate.engine.drive.run_feature import lock_feature_journal
from phasegate.engine.journal.entries import ACCEPTANCE_SEALED
from phasegate.engine.journal.package import read_planned_packages
from phasegate.engine.project.current_specs import read_current_specs
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.ports import RecordReader, RunRecord
from phasegate.engine.project.project import Project
from phasegate.engine.views.trace import trace_feature
from phasegate.errors import ConfigError, StateConflict
from phasegate.prompts.front_matter import read_yaml
from phasegate.storage.rows import NewEvent
from phasegate.typed import read_json

# An implementer and a reviewer
_RUNS_PER_PACKAGE = 2


class AmendmentImpact(msgspec.Struct, frozen=True):
    """What a changed requirement concerns."""

    feature: str
    requirement: str
    before: str
    after: str
    tasks: tuple[str, ...] = ()
    # Packages that are done again, and those that stay, with their states
    repeated: dict[str, str] = {}
    kept: dict[str, str] = {}
    commits: tuple[str, ...] = ()
    # Acceptance tests that no longer apply
    sealed: tuple[str, ...] = ()


def compute_impact(
    project: Project, reader: RecordReader, slug: str, id_: str, text: str
) -> AmendmentImpact:
    """Return the tasks, packages, commits and tests that an amendment affects."""
    branch = FeatureBranch(project, slug)
    amended = _amend_document(branch, _read_revision(branch, reader, id_), id_, text)
    documents = branch.read_documents(branch.list_documents())
    planned = read_planned_packages(reader, slug)
    if planned and TASKS_FILE not in documents:
        raise StateConflict(
            f"{slug} has manually written packages, which cannot be replanned",
            "edit the package, or go back: phasegate back PHASE WHY",
        )

    tasks = parse_tasks(documents.get(TASKS_FILE, ""), read_yaml).tasks
    named = [task for task in tasks if id_ in task.spec]
    states = {row.id: str(row.state) for row in reader.packages(slug)}
    affected = [name for name, one in planned.items() if id_ in one.package.requirements]
    others = [name for name in planned if name not in affected]
    commits = [
        f"{commit.id[:12]} {commit.subject}"
        for requirement in trace_feature(project, slug).requirements
        for commit in requirement.commits
        if requirement.id == id_
    ]
    seal = _read_seal(reader, slug)

    return AmendmentImpact(
        feature=slug,
        requirement=id_,
        before=amended.before,
        after=text.strip(),
        tasks=tuple(f"{task.id} {task.title}" for task in named),
        repeated={name: states.get(name, "") for name in affected},
        kept={name: states.get(name, "") for name in others},
        commits=tuple(commits),
        sealed=seal.tests.get(id_, ()) if seal else (),
    )


def render_impact(impact: AmendmentImpact) -> list[str]:
    """Render the impact of an amendment as text."""
    lines = [f"{impact.requirement} of {impact.feature}"]
    lines += [f"  before: {impact.before}", f"  after:  {impact.after}"]
    lines += [f"  task {task}" for task in impact.tasks]
    lines += [f"  commit {commit}" for commit in impact.commits]
    lines += [f"  sealed test that no longer applies: {test}" for test in impact.sealed]
    lines += [f"  done again: {name} ({state})" for name, state in impact.repeated.items()]
    lines += [f"  stays: {name} ({state})" for name, state in impact.kept.items()]
    runs = _RUNS_PER_PACKAGE * len(impact.repeated)
    if runs:
        lines.append(
            f"  at least {pluralize(runs, 'agent run')}, and the phases after the packages again"
        )
    else:
        lines.append("  no package is done again")
    return lines


def amend_requirement(
    project: Project, record: RunRecord, slug: str, id_: str, text: str, by: OrderOrigin
) -> Feature:
    """Change the text of a requirement in the feature's specification, and record it.

    The document is changed first: after a crash in between, the command can be repeated.
    """
    branch = FeatureBranch(project, slug)
    with lock_feature_journal(project, record, slug, "amend") as journal:
        revision = _read_revision(branch, record, id_)
        amended = _amend_document(branch, revision, id_, text)
        event = Amended(requirement=id_, text=text.strip(), before=amended.before, by=by)
        after = apply_or_refuse(journal.state, event)
        if isinstance(after, Refusal):
            raise make_refusal_error(after, journal.state)

        branch.commit_files(
            {f"{branch.folder}/{SPEC_FILE}": amended.text.encode()}, f"amend {id_}\n"
        )
        return journal.record(event, rows=_unseal(record, slug, id_))


def _unseal(reader: RecordReader, slug: str, id_: str) -> tuple[NewEvent, ...]:
    """Return the acceptance seal without one requirement's tests."""
    seal = _read_seal(reader, slug)
    if seal is None or id_ not in seal.tests:
        return ()

    tests = {name: tests for name, tests in seal.tests.items() if name != id_}
    revisions = {name: one for name, one in seal.revisions.items() if name != id_}
    rest = msgspec.structs.replace(seal, tests=tests, revisions=revisions)
    return (NewEvent(ACCEPTANCE_SEALED, msgspec.json.encode(rest)),)


def _read_seal(reader: RecordReader, slug: str) -> AcceptanceSeal | None:
    sealed = [one.payload for one in reader.events(slug) if one.kind == ACCEPTANCE_SEALED]
    if sealed:
        return read_json(sealed[-1], AcceptanceSeal)
    return None


def _read_revision(branch: FeatureBranch, reader: RecordReader, id_: str) -> str:
    """Return the revision of a requirement in the current specifications; empty if it is new."""
    base = next(row.base for row in reader.workflows() if row.feature == branch.slug)
    tip = branch.project.refs.fetch(base).get(base)
    found = find_requirement(read_current_specs(branch.project, tip).specs, id_) if tip else None
    return compute_revision(found[1]) if found else ""


def _amend_document(branch: FeatureBranch, revision: str, id_: str, text: str) -> AmendedSpec:
    """Return spec.md with the new text of a requirement; raise if there is none."""
    blob = branch.list_documents().get(SPEC_FILE)
    texts = branch.read_documents({SPEC_FILE: blob}) if blob else {}
    if not text.strip():
        raise ConfigError("the new text is empty", 'phasegate amend FR-X "the new text"')

    try:
        amended = amend_spec(texts.get(SPEC_FILE, ""), id_, text, revision)
    except MalformedSpec as error:
        raise StateConflict(
            f"{SPEC_FILE}: {error}", "correct it on the feature's branch"
        ) from error
    if amended is None:
        raise ConfigError(
            f"{SPEC_FILE} of {branch.slug} has no requirement {id_}",
            "phasegate trace lists its requirements. To change one of a merged feature, start a "
            'new one: phasegate run feature "..."',
        )
    return amended
