"""A feature whose tests fail only on top of what was merged before it: it gets that, and goes back."""

from __future__ import annotations

from phasegate.checks.evidence import Evidence
from phasegate.engine.feature_branch import Branch
from phasegate.engine.phase_checks import check_merge
from phasegate.engine.validation import failures_of
from phasegate.rules.feature_events import NotMerged, SentBack
from phasegate.rules.merge_queue import red_combination
from phasegate.workspace.commit_log import merged_since
from phasegate.workspace.objects import write_merge


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
