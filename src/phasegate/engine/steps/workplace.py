"""Where a package is worked on.

Its checkouts, what each agent may change there, and what is kept about its rounds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property, lru_cache
from pathlib import Path

from phasegate.agents.envelope import AgentShare
from phasegate.core.agents.secrets import SecretMatcher
from phasegate.core.paths.glob import is_pattern
from phasegate.core.paths.own_folders import OWN_FOLDERS
from phasegate.core.paths.scope import Scope
from phasegate.core.plan.work_package import WorkPackage, split_evenly
from phasegate.engine.checks.baseline import BaseTree
from phasegate.engine.checks.manifest import choose_profile
from phasegate.engine.journal.entries import ScopeException
from phasegate.engine.journal.package import PlannedPackage
from phasegate.engine.project.project import Project
from phasegate.engine.project.secrets import collect_lent_secrets
from phasegate.engine.steps.scope_exceptions import allowed_paths, protected_paths
from phasegate.errors import StateConflict
from phasegate.git import Identity
from phasegate.storage.state_file import STATE_PATH
from phasegate.workspace.agent_git_writer import remove_dangerous_git_files
from phasegate.workspace.checkout import Assignment, Checkout, find_checkout
from phasegate.workspace.checkout_creation import (
    NO_PLACED_FILES,
    CheckoutOptions,
    CheckoutPopulator,
    PlacedFiles,
)
from phasegate.workspace.checkout_lifecycle import UnsavedWork, ensure_checkout, update_checkout
from phasegate.workspace.commit_log import list_blobs
from phasegate.workspace.export import export_tree
from phasegate.workspace.objects import Signature
from phasegate.workspace.refs import BRANCH_PREFIX
from phasegate.workspace.removal import place_file, place_folder, remove_tree
from phasegate.workspace.repository import read_user_identity
from phasegate.workspace.worktree_include import copy_included_files, list_included_files

STATE_FOLDER, _, STATE_NAME = STATE_PATH.partition("/")


class PackageWorkspace:
    """One package's place in the repository, for one dispatcher and `count` agents side by side.

    Each attempt of a contest has a place of its own, in which it is the only one.
    """

    def __init__(
        self,
        project: Project,
        planned_package: PlannedPackage,
        agent_count: int,
        phase: str,
        attempt: int | None = None,
    ) -> None:
        self.project = project
        self.agent_count = agent_count
        self.phase = phase
        self._planned_package = planned_package
        self._attempt = attempt
        self.package = planned_package.package
        self.document = planned_package.document
        self.blobs_of = lru_cache(maxsize=4)(lambda commit: list_blobs(project.repository, commit))

    @cached_property
    def _user(self) -> Identity:
        return read_user_identity(self.project.repository)

    def signature(self) -> Signature:
        """Who commits what agents could not commit themselves, and when."""
        return Signature(self._user, int(self.project.clock.time_s()))

    @cached_property
    def lent_secrets(self) -> SecretMatcher:
        return collect_lent_secrets(self.project)

    @property
    def name(self) -> str:
        """As rooms of the package are named."""
        return f"{self.package.feature_slug}-{self.package.work_package_id}"

    @property
    def document_name(self) -> str:
        return f"{self.package.work_package_id}.md"

    # --- checkouts

    def assignment(self, index: int) -> Assignment:
        package = self.package
        shared = index if self.agent_count > 1 else None
        return Assignment(package.feature_slug, package.work_package_id, shared, self._attempt)

    def for_attempt(self, number: int) -> PackageWorkspace:
        return PackageWorkspace(self.project, self._planned_package, 1, self.phase, number)

    def checkout_options(self) -> CheckoutOptions:
        signature = self.signature()
        worktrees = self.project.worktrees_folder
        return CheckoutOptions(
            agent=signature.who,
            signature=signature,
            set_aside=(self.document_name, STATE_FOLDER),
            litter=self.litter,
            worktrees=worktrees,
            lent=self.lent_secrets,
            populate=make_checkout_preparer(self.project, self.package),
        )

    def ensure_checkout(self, index: int) -> Checkout:
        """The checkout of an agent, made if it is not there, with the package's document in it."""
        checkout = find_checkout(self.project.repository, self.assignment(index))
        if checkout is None:
            checkout = ensure_checkout(
                self.project.repository, self.assignment(index), self.checkout_options()
            )

        place_file(checkout.folder, self.document_name, self.document)
        return checkout

    def ensure_checkouts(self) -> list[Checkout]:
        return [self.ensure_checkout(index) for index in range(self.agent_count)]

    def renew_checkout(self, index: int) -> None:
        """Save what an agent left, and begin anew from what was taken over and what others merged."""
        found = find_checkout(self.project.repository, self.assignment(index))
        if found is not None:
            raise_if_unsaved(update_checkout(found, self.checkout_options()))

    def disarm_checkout(self, index: int) -> None:
        """Let no git of the person's run what an agent left in the git directory of its checkout."""
        found = find_checkout(self.project.repository, self.assignment(index))
        if found is not None:
            remove_dangerous_git_files(found, self._user)

    def base_commit(self) -> str:
        """The commit that the work is measured from.

        The head of the feature's branch when the checkout was made.
        """
        return self.ensure_checkout(0).base

    # --- what an agent may do

    def share(self, index: int) -> AgentShare | None:
        if self.agent_count == 1:
            return None
        return AgentShare(
            index,
            self.agent_count,
            split_evenly(self.package.deliverables.all, self.agent_count)[index],
        )

    def scope(self, index: int, exceptions: tuple[ScopeException, ...]) -> Scope:
        """What an agent may change; of several, each owns its part of the deliverables alone."""
        allowed = allowed_paths(exceptions, self.ensure_checkout(index).folder)
        protected = protected_paths(self.project)
        share = self.share(index)
        own = (*OWN_FOLDERS, self.project.config.paths.worktrees)
        if share is None:
            return self.package.build_scope(allowed, self.litter, own, protected)

        executable = [path for path in self.package.executable_files if path in share.deliverables]
        aside = (self.document_name,)
        entries = (*share.deliverables, *(self._undelivered_files() if index == 0 else ()))

        return Scope(
            entries,
            executable=executable,
            exceptions=allowed,
            set_aside=aside,
            litter=self.litter,
            own_folders=own,
            protected=protected,
        )

    def _undelivered_files(self) -> list[str]:
        """Files in scope that nobody is to deliver, such as those to be deleted: the first agent's."""
        mine = [
            path
            for path in self.package.file_scope
            if not is_pattern(path) and not path.endswith("/")
        ]
        return [path for path in mine if path not in self.package.deliverables.all]

    @cached_property
    def litter(self) -> tuple[str, ...]:
        """What tools leave behind.

        As the person configured it, and as the package's profile knows it.
        """
        profile = choose_profile(
            self.project,
            self.package.profile,
            [entry.name for entry in self.project.root.iterdir()],
        )
        return tuple(
            dict.fromkeys(
                (*self.project.config.run.ignored_tool_files, *(profile.litter if profile else ()))
            )
        )

    # --- papers about a round

    def evidence_path(self, round_: int, suffix: str = "") -> str:
        """Where a person finds what our checks found in a round, or of which kind the paper is."""
        package = self.package
        if self._attempt is None:
            attempt = ""
        else:
            attempt = f"-try{self._attempt + 1}"

        return f"evidence/{package.feature_slug}/{package.work_package_id}-{round_}{attempt}{suffix}.md"


def write_state_file(
    folder: Path, state: str, tracked: Iterable[str], set_aside: Collection[str] = (STATE_FOLDER,)
) -> None:
    """Lay the workflow's state where prompts name it, in a place that is never harvested.

    A repository that tracks such a folder keeps its own; so does a checkout that was made before we
    set it aside.
    """
    if STATE_FOLDER in set_aside and not any(
        path.startswith(f"{STATE_FOLDER}/") for path in tracked
    ):
        place_folder(folder, STATE_FOLDER, {STATE_NAME: state})


def review_folder(project: Project, name: str) -> Path:
    """Where a critic or a reviewer of some work is shown it."""
    return project.worktrees_folder / f".review-{name}"


def copy_for_review(project: Project, name: str, commit: str) -> Path:
    """A copy of a commit that is thrown away: whatever is written there has no effect."""
    room = review_folder(project, name)
    if room.exists():
        remove_tree(room)
    export_tree(project.repository, commit, room, with_git=True)
    return room


def current_branch(project: Project) -> str:
    """The branch that the person has checked out: the base of a new feature."""
    return resolve_branch_and_head(project)[0]


def resolve_branch_and_head(project: Project, *preferred: str) -> tuple[str, str]:
    """The first of these branches that is there, and its head.

    Else those of the branch that the person has checked out. Only then must they have one.
    """
    head = (
        ((project.worktree_git_dir or project.repository.git_dir) / "HEAD")
        .read_text(encoding="utf-8")
        .strip()
    )
    if head.startswith("ref: " + BRANCH_PREFIX):
        current = [head.removeprefix("ref: " + BRANCH_PREFIX)]
    else:
        current = []

    names = (*preferred, *current)
    if names:
        found = project.refs.fetch(*names)
    else:
        found = {}

    for name in names:
        if name in found:
            return name, found[name]

    if not current:
        raise StateConflict(
            "HEAD is detached", "check out the branch that the feature is to be based on"
        )

    raise StateConflict(f"{current[0]} has no commit yet", "commit something first")


def raise_if_unsaved(result: object) -> None:
    """A checkout whose work cannot be saved is for a person to look into."""
    if isinstance(result, UnsavedWork):
        raise StateConflict(
            f"{result.folder} cannot be reset: {result.reason}", "look into it, then try again"
        )


def make_checkout_preparer(project: Project, package: WorkPackage) -> CheckoutPopulator:
    """What makes a checkout of a package ready."""
    own = (*OWN_FOLDERS, project.config.paths.worktrees.partition("/")[0])

    def furnish(folder: Path, home: Path, commit: str) -> PlacedFiles:
        base = BaseTree(project, package, commit)
        if base.user_commit is None:
            return NO_PLACED_FILES

        made = base.copy_setup(folder, home)
        brought = copy_included_files(
            project.root, list_included_files(project.repository, base.user_commit, own), folder
        )

        return made._replace(
            paths=tuple(
                path for path in (*made.paths, *brought) if not _is_deliverable(package, path)
            )
        )

    return furnish


def _is_deliverable(package: WorkPackage, path: str) -> bool:
    """Whether the package is to deliver it, or something below it.

    Then it is the agent's, whoever made it first.
    """
    return any(due == path or due.startswith(f"{path}/") for due in package.deliverables.all)
