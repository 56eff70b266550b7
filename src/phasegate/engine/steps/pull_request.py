"""What features and packages have in common at a forge.

A branch pushed, a pull request that shows it, answers.

Each is safe to repeat: what is there is found before anything is made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from phasegate.core.forge.pull_request import PullRequest, PullState, build_marker, defuse_triggers
from phasegate.core.machine.package_events import AcceptedRemark
from phasegate.engine.project.forge import ForgeConnection, open_forge
from phasegate.engine.project.project import Project
from phasegate.forge.port import PullSpec
from phasegate.workspace.remote import PushResult, fetch_branch, get_remote_branch, push_branch
from phasegate.workspace.repository import is_ancestor, resolve_commit

_MAX_TITLE_CHARS = 120


class ForgeProblem(NamedTuple):
    """What a person has to see to."""

    reason: str
    remedy: str


class PullRequestPublisher:
    """One feature or package at its forge.

    `begun` tells this run of it from another one of the same name.
    """

    def __init__(self, project: Project, name: str, started_at: str) -> None:
        self.project = project
        self.name = name
        self.connection: ForgeConnection = open_forge(project)
        self._id = hashlib.sha256(f"{started_at} {name}".encode()).hexdigest()[:16]

    @property
    def marker(self) -> str:
        return build_marker(self._id, self.name)

    def push(self, branch: str, head: str, last_pushed: str) -> ForgeProblem | None:
        """The branch at the forge is moved from where we left it, or forward.

        Over nobody's commits.
        """
        repository = self.project.repository
        remote = self.connection.remote
        there = get_remote_branch(repository, remote, branch)
        if there == head:
            return None

        if there:
            is_behind = resolve_commit(repository, there) is not None and is_ancestor(
                repository, there, head
            )
        else:
            is_behind = True

        if there and there != last_pushed and not is_behind:
            return ForgeProblem(
                f"{branch} at the forge is at {there[:12]}, which nobody here judged",
                f"merge it into {branch}, or delete the branch there; then resolve",
            )

        pushed, said = push_branch(repository, remote, branch, there, head)
        if pushed is PushResult.DONE:
            return None

        if pushed is PushResult.MOVED:
            return ForgeProblem(
                f"{branch} at the forge was moved meanwhile", "see who pushed there, then resolve"
            )

        return ForgeProblem(
            f"the forge refuses the push of {branch}: {said}",
            "see its rules for branches, then resolve",
        )

    def ensure_pull_request(
        self, branch: str, base: str, title: str, body: str
    ) -> PullRequest | ForgeProblem:
        """The pull request that shows a branch.

        The one that is there, brought up to date, or a new one.
        """
        settings = self.project.config.merge
        forge = self.connection.forge
        if len(title) <= _MAX_TITLE_CHARS:
            short = title
        else:
            short = f"{title[: _MAX_TITLE_CHARS - 3]}..."

        wanted = PullSpec(
            branch=branch,
            base=base,
            title=short,
            body=body,
            draft=settings.draft,
            reviewers=settings.reviewers,
            labels=settings.labels,
        )

        # The answer to a creation may have been lost: then it is found
        for _ in range(2):
            found = next(iter(forge.find_pulls(branch, base)), None)
            if found is not None and found.state is PullState.OPEN:
                if self.marker not in found.body:
                    return ForgeProblem(
                        f"{found.url} was opened from {branch} by somebody else",
                        "close it, then resolve",
                    )

                if found.body == body and not found.draft:
                    return found
                return forge.update_pull(found, wanted)

            made = forge.create_pull(wanted)
            if made is not None:
                return made

        return ForgeProblem(
            "the forge says that there is a pull request and shows none", "look there, then resolve"
        )

    def answer_remarks(
        self, pull: PullRequest, remarks: Iterable[AcceptedRemark], head: str
    ) -> None:
        """Each remark of the round gets its answer once: one that is there already is not repeated."""
        remarks = tuple(remarks)

        if remarks:
            said = "\n".join(
                one.text for one in self.connection.forge.fetch_pull(pull.number).remarks
            )
        else:
            said = ""

        for remark in remarks:
            marker = build_marker(self._id, remark.id)
            if marker not in said:
                self.connection.forge.reply(
                    pull.number, remark.thread, f"Done in {head}.\n\n{marker}"
                )

    def find_head_containing(self, branch: str, commit: str) -> str:
        """The head of a branch at the forge if it has this commit in its history; else empty."""
        repository = self.project.repository
        tip = fetch_branch(repository, self.connection.remote, branch)
        is_there = tip and commit and resolve_commit(repository, commit) is not None
        if is_there and is_ancestor(repository, commit, tip):
            return tip

        return ""


def make_pull_title(name: str, text: str) -> str:
    """A title in which a forge finds nothing to do."""
    return f"{name}: {defuse_triggers(' '.join(text.split()))}"
