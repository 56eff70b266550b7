"""The end of a feature: its branch merged into its base, and what is done with put away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from phasegate.checks.evidence import Evidence
from phasegate.checks.excerpt import listed
from phasegate.config.settings import MOST_ATTEMPTS, CommitHooks
from phasegate.core.machine.feature_events import Completed, Merged, NotMerged, SentBack
from phasegate.core.machine.feature_state import Feature
from phasegate.core.plan.overlap import red_combination
from phasegate.engine.checks.manifest import describe, failures_of
from phasegate.engine.checks.phase_commands import check_merge
from phasegate.engine.jobs.trail_notes import JobNotes
from phasegate.engine.project.feature_branch import Branch
from phasegate.engine.project.project import Project
from phasegate.engine.project.secrets import lent_keys
from phasegate.engine.steps.briefing import CHANGELOG
from phasegate.engine.steps.workplace import review_room
from phasegate.errors import InTheWay
from phasegate.workspace.checkout import Assignment, Checkout, find_checkout
from phasegate.workspace.checkout_lifecycle import Unsaved, drop_branch, remove_checkout
from phasegate.workspace.commit_log import merged_since
from phasegate.workspace.merge import AlreadyMerged, Conflict, Unsigned, commit_hooks, prepare_merge, signed
from phasegate.workspace.objects import write_merge
from phasegate.workspace.refs import BRANCHES
from phasegate.workspace.removal import remove_tree
from phasegate.workspace.repository import read_refs

_TRIES = 20
_UNSIGNED = "unlock the key, or fix gpg.format, user.signingkey and gpg.program, then resolve: the merge is tried again"
MOST_AGENTS = 64


def merge_feature(project: Project, feature: Feature, notes: JobNotes) -> Merged | NotMerged | SentBack:
    """Merge a feature's branch into its base: tested as merged, by compare and swap, over nobody's commits.

    Only the archive may have come after the commit that the last reviewer saw.
    """
    branch, base = Branch(project, feature.workflow.feature), feature.base
    if hooked := stopped_by_hooks(project, branch.name, base):
        return hooked
    title = f"{branch.slug}: {' '.join(feature.description.split()) or feature.workflow.type}"
    if not project.config.run.deliver_feature_folder:
        gone = {f"{branch.folder}/{name}": None for name in branch.files()}
        branch.put(gone, f"archive: {branch.folder} is not delivered\n")
    for _ in range(_TRIES):
        done = _try_to_merge(branch, base, title, feature.judged, notes)
        if done is not None:
            return done
    return NotMerged(f"{base} keeps moving", "resolve when it is quiet: the merge is tried again")


def _try_to_merge(
    branch: Branch, base: str, title: str, judged: str, notes: JobNotes
) -> Merged | NotMerged | SentBack | None:
    project, repository = branch.project, branch.project.repository
    message = f"{title}\n\nMerge {branch.name} into {base}.\n"
    made = prepare_merge(repository, branch.name, base, message, project.signature())
    if isinstance(made, AlreadyMerged):
        return Merged(made.commit)
    if isinstance(made, Conflict):
        paths = ", ".join(made.paths)
        return NotMerged(f"{branch.name} and {base} changed the same lines: {paths}", _by_hand(branch, base))
    if later := branch.changed_since(judged, made.source, CHANGELOG, branch.folder):
        return NotMerged(
            f"changed on {branch.name} after its last review: {listed(later)}",
            "look at what changed there, and resolve if it is to be merged",
        )
    evidence = check_merge(project, branch.slug, made.expected, made.commit)
    notes.checks(evidence, made.commit, project.papers.put(describe(evidence).encode()))
    if evidence.failures:
        return send_back(branch, base, made.expected, made.source, made.tree, evidence)
    made_so = signed(repository, made, message, project.signature())
    if isinstance(made_so, Unsigned):
        return NotMerged(
            f"your commits are to be signed (commit.gpgsign), and signing failed: {made_so.reason}", _UNSIGNED
        )
    made = made_so
    try:
        if not project.refs.move(base, made.expected, made.commit):
            return None
    except InTheWay as error:
        return NotMerged(str(error), "commit or stash what is there, then resolve: the merge is tried again")
    notes.merged(made.commit, message)
    return Merged(made.commit)


def _by_hand(branch: Branch, base: str) -> str:
    return f"merge {base} into {branch.name} and solve it there, then resolve: the merge is tried again"


def works_of(feature: Feature) -> tuple[str, ...]:
    """All that checkouts and branches of a feature are named after."""
    return (*feature.packages, *feature.workflow.phases, "archive", "feature")


def tidy(project: Project, feature: Feature) -> Completed:
    """Put away checkouts, rooms, and branches that the base has; what holds more is kept and named."""
    slug, names = feature.workflow.feature, works_of(feature)
    put_away(project, slug, names)
    branches = feature_branches(project, slug, names)
    merged = feature.pull.head if feature.pull and feature.merged else ""
    return Completed(tuple(branch for branch in branches if not _dropped(project, slug, branch, feature.base, merged)))


def _dropped(project: Project, slug: str, branch: str, base: str, merged: str) -> bool:
    """A branch is not needed when its base, or the feature's branch, has its whole history."""
    targets = (base, f"feat/{slug}") if branch != f"feat/{slug}" else (base,)
    return any(drop_branch(project.repository, branch, target, merged) for target in targets)


def put_away(project: Project, slug: str, works: Iterable[str]) -> tuple[str, ...]:
    """Remove the checkouts of a feature, saving what is in them; the folders that had to stay."""
    kept = []
    for work in works:
        for found in _checkouts(project, slug, work):
            if isinstance(remove_checkout(found, project.signature(), lent_keys(project)), Unsaved):
                kept.append(str(found.folder))
        for room in (
            review_room(project, f"{slug}-{work}"),
            project.location.folder / "rooms" / f"{slug}-{work}",
        ):
            if room.exists():
                remove_tree(room)
    return tuple(kept)


def _checkouts(project: Project, slug: str, work: str) -> Iterator[Checkout]:
    """The checkouts of a piece of work: one, or one for each agent."""
    single = Assignment(slug, work)
    shares = (Assignment(slug, work, index) for index in range(MOST_AGENTS))
    attempts = (Assignment(slug, work, attempt=number) for number in range(MOST_ATTEMPTS))
    for assignment in (single, *shares, *attempts):
        found = find_checkout(project.repository, assignment)
        if found is not None:
            yield found


def feature_branches(project: Project, slug: str, works: Iterable[str]) -> list[str]:
    """The branches of a feature that there are, its own last."""
    tries = (Assignment(slug, work, attempt=number).branch for work in works for number in range(MOST_ATTEMPTS))
    names = [*tries, *(f"feat/{slug}-{work}" for work in works), f"feat/{slug}"]
    refs = read_refs(project.repository, *(BRANCHES + name for name in names))
    return [name for name in names if BRANCHES + name in refs]


def stopped_by_hooks(project: Project, branch: str, base: str) -> NotMerged | None:
    """A person may want no commits that their hooks have not seen."""
    hooks = commit_hooks(project.repository) if project.config.run.commit_hooks is CommitHooks.STOP else ()
    if not hooks:
        return None
    return NotMerged(
        f"commits here go through hooks ({', '.join(hooks)}), and they are not run on ours",
        f'merge {branch} into {base} by hand, or set commit_hooks = "skip" in [run]; then resolve',
    )


def skipped_hooks(project: Project) -> tuple[str, ...]:
    """What a person is told where their hooks would run at a commit, and do not at ours."""
    hooks = commit_hooks(project.repository)
    return (f"not run on this merge: your hooks {', '.join(hooks)} ([run] commit_hooks)",) if hooks else ()


def send_back(
    branch: Branch, base: str, tip: str, source: str, tree: str, evidence: Evidence
) -> SentBack | NotMerged | None:
    """What becomes of a red combination. None if the branch moved meanwhile.

    Where nothing came since the feature began, or the base fails by itself, more work at the feature would not help.
    """
    project, remedy = branch.project, f"fix {branch.name}, then resolve"
    found = "\n".join(failures_of(evidence))
    since = merged_since(project.repository, source, tip)
    reason = f"the checks fail on {branch.name} merged into {base}"
    if not since:
        return NotMerged(f"{reason}:\n{found}", remedy)
    if check_merge(project, branch.slug, tip, tip).failures:
        return NotMerged(f"{reason}, and on {base} without it:\n{found}", f"fix {base}, then resolve")
    message = f"{branch.slug}: take in what came to {base}\n"
    commit = write_merge(project.repository, tree, (source, tip), project.signature(), message)
    if not project.refs.move(branch.name, source, commit):
        return None
    return SentBack(red_combination(branch.name, base, since), found, remedy)
