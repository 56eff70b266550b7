"""What a writer left in its checkout, put on the feature's branch: only what its scope covers."""

from __future__ import annotations

from phasegate.checks.secrets import find_secrets
from phasegate.engine.feature_branch import Branch
from phasegate.engine.harvesting import Left
from phasegate.engine.job_notes import JobNotes
from phasegate.engine.validation import added_by
from phasegate.errors import StateConflict
from phasegate.rules.visible_text import visible
from phasegate.workspace.commit_log import commits_between
from phasegate.workspace.merge import AlreadyMerged, Conflict, prepare_merge

_TRIES = 5


def take_documents(branch: Branch, left: Left, notes: JobNotes) -> tuple[str, ...]:
    """Take over what a writer left, if it is within its scope; what stands against it. A second time is no harm.

    Documents are shown to other agents and merged: where something looks like a secret nothing is taken, and it is
    told where.
    """
    leaks = (f"{where}: it holds a key that was lent to the agent" for where in left.leaks())
    if violations := (*left.violations(), *leaks):
        notes.violations(violations)
        return violations
    taken = left.taken_over()
    if secrets := _secrets(branch, left.checkout.start, taken.tip):
        notes.violations(secrets)
        return secrets
    notes.taken([taken], left.checkout.start)
    if not branch.take_in(taken.tip):
        _merge_in(branch, left.checkout.assignment.branch)
    return ()


def _secrets(branch: Branch, start: str, tip: str) -> tuple[str, ...]:
    commits = [one.id for one in commits_between(branch.project.repository, start, tip)]
    found = find_secrets(added_by(branch.project, start, commits))
    return tuple(f"{secret.kind} in {visible(secret.path)}:{secret.line}" for secret in found if not secret.allowed)


def _merge_in(branch: Branch, source: str) -> None:
    """Somebody moved the feature's branch meanwhile: both histories are kept."""
    project, target = branch.project, branch.name
    for _ in range(_TRIES):
        made = prepare_merge(project.repository, source, target, f"merge {source}\n", project.signature())
        if isinstance(made, Conflict):
            raise StateConflict(
                f"{source} and {target} changed the same files: {', '.join(made.paths)}",
                f"merge {source} into {target} by hand, then run again",
            )
        if isinstance(made, AlreadyMerged):
            return
        if project.refs.move(target, made.expected, made.commit):
            return
    raise StateConflict(f"{target} keeps moving", "run again")
