"""Workspace of a package: its checkouts, each agent's scope and the evidence of its rounds."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property, lru_cache
from pathlib import Path

from phasegate.agents.envelope import AgentShare
from phasegate.core.agents.secrets import SecretMatcher
from phasegate.core.paths.glob import is_pattern
from phasegate.core.paths.own_folders import OWN_FOLDERS
from phasegate.core.paths.scope import Scope
from phasegate.core.plan.acceptance import SealedTests
from phasegate.core.plan.work_package import WorkPackage, split_evenly
from phasegate.engine.checks.manifest import choose_profile
from phasegate.engine.checks.run_baseline import BaseTree
from phasegate.engine.journal.entries import ScopeException
from phasegate.engine.journal.package import PlannedPackage
from phasegate.engine.project.project import Project
from phasegate.engine.project.secrets import collect_lent_secrets
from phasegate.engine.steps.scope_exceptions import allowed_paths, protected_paths
from phasegate.errors import StateConflict
from phasegate.git import Identity
from phasegate.storage.state_file import STATE_PATH
from phasegate.workspace.checkout.agent_git_writer import remove_dangerous_git_files
from phasegate.workspace.checkout.checkout import Assignment, Checkout, find_checkout
from phasegate.workspace.checkout.checkout_creation import (
    NO_PLACED_FILES,
    CheckoutOptions,
    CheckoutPopulator,
    PlacedFiles,
)
from phasegate.workspace.checkout.export import export_tree
from phasegate.workspace.checkout.removal import place_file, place_folder, remove_tree
from phasegate.workspace.checkout_lifecycle import UnsavedWork, ensure_checkout, update_checkout
from phasegate.workspace.repository.commit_log import list_blobs
from phasegate.workspace.repository.objects import Signature
from phasegate.workspace.repository.refs import BRANCH_PREFIX
from phasegate.workspace.repository.repository import read_user_identity
from phasegate.workspace.repository.worktree_include import (
    INCLUDE_FILE_NAME,
    copy_included_files,
    list_included_files,
)

STATE_FOLDER, _, STATE_NAME = STATE_PATH.partition("/")


class PackageWorkspace:
    """One package's checkouts in the repository, for one process and `agent_count` parallel agents.

    Each attempt of a contest has its own workspace with one agent.
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
        # Paths and dependencies that the user permits besides those of the package
        self.approved: tuple[str, ...] = ()
        # The sealed acceptance tests, with the requirements that the package completes
        self.acceptance: SealedTests | None = None
        self.blobs_of = lru_cache(maxsize=4)(lambda commit: list_blobs(project.repository, commit))

    @cached_property
    def _user(self) -> Identity:
        return read_user_identity(self.project.repository)

    def signature(self) -> Signature:
        """Return the committer and time of commits that agents could not make themselves."""
        return Signature(self._user, int(self.project.clock.time_s()))

    @cached_property
    def lent_secrets(self) -> SecretMatcher:
        return collect_lent_secrets(self.project)

    @property
    def name(self) -> str:
        """Return the name after which the package's folders are named."""
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
        attempt = PackageWorkspace(self.project, self._planned_package, 1, self.phase, number)
        attempt.approved = self.approved
        attempt.acceptance = self.acceptance
        return attempt

    def checkout_options(self) -> CheckoutOptions:
        """Return the options for creating the package's checkout."""
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
        """Return an agent's checkout with the package's document in it, creating it if needed."""
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
        """Save an agent's changes, and update its checkout to the current branches."""
        checkout = find_checkout(self.project.repository, self.assignment(index))
        if checkout is not None:
            raise_if_unsaved(update_checkout(checkout, self.checkout_options()))

    def remove_dangerous_git_files(self, index: int) -> None:
        """Remove hooks and settings of an agent's git directory, which the user's git would run."""
        checkout = find_checkout(self.project.repository, self.assignment(index))
        if checkout is not None:
            remove_dangerous_git_files(checkout, self._user)

    def base_commit(self) -> str:
        """Return the commit that changes are compared with.

        It is the head of the feature's branch when the checkout was created.
        """
        return self.ensure_checkout(0).base

    # --- scope

    def share(self, index: int) -> AgentShare | None:
        """Return the agent's part of the deliverables, or None for a single agent."""
        if self.agent_count == 1:
            return None
        return AgentShare(
            index,
            self.agent_count,
            split_evenly(self.package.deliverables.all, self.agent_count)[index],
        )

    def scope(self, index: int, exceptions: tuple[ScopeException, ...]) -> Scope:
        """Return an agent's scope; several agents each own only their deliverables."""
        allowed = allowed_paths(exceptions, self.ensure_checkout(index).folder)
        protected = protected_paths(self.project, self.package.feature_slug)
        share = self.share(index)
        own_folders = (*OWN_FOLDERS, self.project.config.paths.worktrees)
        if share is None:
            return self.package.build_scope(allowed, self.litter, own_folders, protected)

        executable = [path for path in self.package.executable_files if path in share.deliverables]
        set_aside = (self.document_name,)
        entries = (*share.deliverables, *(self._undelivered_files() if index == 0 else ()))

        return Scope(
            entries,
            executable=executable,
            exceptions=allowed,
            set_aside=set_aside,
            litter=self.litter,
            own_folders=own_folders,
            protected=protected,
        )

    def _undelivered_files(self) -> list[str]:
        """Return files in scope that are not deliverables, such as files to delete.

        They belong to the first agent.
        """
        return [
            path
            for path in self.package.file_scope
            if not is_pattern(path)
            and not path.endswith("/")
            and path not in self.package.deliverables.all
        ]

    @cached_property
    def litter(self) -> tuple[str, ...]:
        """Return the patterns of tool leftovers, from the configuration and the profile."""
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

    # --- evidence

    def evidence_path(self, round_: int, suffix: str = "") -> str:
        """Return the path of the evidence of a round, or of another document with this suffix."""
        package = self.package
        attempt = "" if self._attempt is None else f"-try{self._attempt + 1}"
        name = f"{package.work_package_id}-{round_}{attempt}{suffix}.md"

        return f"evidence/{package.feature_slug}/{name}"


def write_state_file(
    folder: Path, state: str, tracked: Iterable[str], set_aside: Collection[str] = (STATE_FOLDER,)
) -> None:
    """Write the workflow's state where prompts refer to it; it is never harvested.

    A repository that tracks such a folder keeps its own, and so does a checkout that was created
    before the folder was set aside.
    """
    if STATE_FOLDER in set_aside and not any(
        path.startswith(f"{STATE_FOLDER}/") for path in tracked
    ):
        place_folder(folder, STATE_FOLDER, {STATE_NAME: state})


def review_folder(project: Project, name: str) -> Path:
    """Return the folder of the copy that a critic or reviewer works in."""
    return project.worktrees_folder / f".review-{name}"


def copy_for_review(project: Project, name: str, commit: str) -> Path:
    """Copy a commit to a temporary folder, in which changes have no effect."""
    folder = review_folder(project, name)
    if folder.exists():
        remove_tree(folder)
    export_tree(project.repository, commit, folder, with_git=True)
    return folder


def current_branch(project: Project) -> str:
    """Return the branch that the user has checked out: the base of a new feature."""
    return resolve_branch_and_head(project)[0]


def resolve_branch_and_head(project: Project, *preferred: str) -> tuple[str, str]:
    """Return the first of these branches that exists, and its head.

    If none exists, the branch that the user has checked out is used; a detached HEAD is then an
    error.
    """
    git_dir = project.worktree_git_dir or project.repository.git_dir
    head = (git_dir / "HEAD").read_text(encoding="utf-8").strip()
    prefix = "ref: " + BRANCH_PREFIX
    current = [head.removeprefix(prefix)] if head.startswith(prefix) else []

    names = (*preferred, *current)
    heads = project.refs.fetch(*names) if names else {}
    for name in names:
        if name in heads:
            return name, heads[name]

    if not current:
        raise StateConflict(
            "HEAD is detached", "check out the branch that the feature should be based on"
        )

    raise StateConflict(f"{current[0]} has no commit yet", "commit something first")


def raise_if_unsaved(result: object) -> None:
    """Raise StateConflict if a checkout's changes could not be saved."""
    if isinstance(result, UnsavedWork):
        raise StateConflict(
            f"{result.folder} cannot be reset: {result.reason}", "inspect it, then try again"
        )


def make_checkout_preparer(project: Project, package: WorkPackage) -> CheckoutPopulator:
    """Return the function that prepares a package's checkout: setup results and included files."""
    own_folders = (*OWN_FOLDERS, project.config.paths.worktrees.partition("/")[0])

    def prepare(folder: Path, home: Path, commit: str) -> PlacedFiles:
        """Copy the setup and the included files into a new checkout."""
        base = BaseTree(project, package, commit)
        if base.user_commit is None:
            return NO_PLACED_FILES

        placed = base.copy_setup(folder, home)
        files = list_included_files(
            project.repository,
            base.user_commit,
            own_folders,
            lambda patterns: project.trust.accepts_text(INCLUDE_FILE_NAME, patterns),
        )
        included = copy_included_files(project.root, files, folder)

        return placed._replace(
            paths=tuple(
                path for path in (*placed.paths, *included) if not _is_deliverable(package, path)
            )
        )

    return prepare


def _is_deliverable(package: WorkPackage, path: str) -> bool:
    """Return whether the package delivers this path or something below it.

    Then it belongs to the agent, no matter which process created it.
    """
    return any(due == path or due.startswith(f"{path}/") for due in package.deliverables.all)
