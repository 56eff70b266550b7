"""An agent's checkout, made ready before it starts: what the setup made, and ignored files that were named.

The setup's result comes from the cache, so from a tree that no agent wrote. Where the work has moved on since, it is
still nearer to what the agent needs than nothing: the agent can run the setup again, and our checks run their own.
"""

from __future__ import annotations

from pathlib import Path

from phasegate.engine.base_check import Base
from phasegate.engine.project import Project
from phasegate.rules.own_folders import OWN_FOLDERS
from phasegate.rules.work_package import WorkPackage
from phasegate.workspace.checkout_making import NOTHING_LAID, Furnish, Laid
from phasegate.workspace.included_files import included_files, lay_included


def furnisher(project: Project, package: WorkPackage) -> Furnish:
    """What makes a checkout of a package ready."""
    own = (*OWN_FOLDERS, project.config.paths.worktrees.partition("/")[0])

    def furnish(folder: Path, home: Path, commit: str) -> Laid:
        base = Base(project, package, commit)
        if base.origin is None:
            return NOTHING_LAID
        made = base.lay_setup(folder, home)
        brought = lay_included(project.root, included_files(project.repository, base.origin, own), folder)
        return made._replace(paths=tuple(path for path in (*made.paths, *brought) if not _is_due(package, path)))

    return furnish


def _is_due(package: WorkPackage, path: str) -> bool:
    """Whether the package is to deliver it, or something below it: then it is the agent's, whoever made it first."""
    return any(due == path or due.startswith(f"{path}/") for due in package.deliverables.all)
