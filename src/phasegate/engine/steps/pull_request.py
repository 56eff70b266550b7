"""What features and packages have in common at a forge: a branch pushed, a pull request that shows it, answers.

Each is safe to repeat: what is there is found before anything is made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from phasegate.core.forge.pull_request import Pull, PullState, defused, marker_of
from phasegate.core.machine.package_events import RemarkTaken
from phasegate.engine.project.forge import AtForge, open_forge
from phasegate.engine.project.project import Project
from phasegate.forge.port import Wanted
from phasegate.workspace.remote import Pushed, branch_there, fetch_branch, push_branch
from phasegate.workspace.repository import commit_of, is_ancestor

_LONGEST_TITLE = 120


class ForgeStop(NamedTuple):
    """What a person has to see to."""

    reason: str
    remedy: str


class Publisher:
    """One feature or package at its forge. `begun` tells this run of it from another one of the same name."""

    def __init__(self, project: Project, name: str, begun: str) -> None:
        self.project, self.name = project, name
        self.at: AtForge = open_forge(project)
        self._id = hashlib.sha256(f"{begun} {name}".encode()).hexdigest()[:16]

    @property
    def marker(self) -> str:
        return marker_of(self._id, self.name)

    def push(self, branch: str, head: str, ours: str) -> ForgeStop | None:
        """The branch at the forge is moved from where we left it, or forward; over nobody's commits."""
        repository, remote = self.project.repository, self.at.remote
        there = branch_there(repository, remote, branch)
        if there == head:
            return None
        is_behind = commit_of(repository, there) is not None and is_ancestor(repository, there, head) if there else True
        if there and there != ours and not is_behind:
            return ForgeStop(
                f"{branch} at the forge is at {there[:12]}, which nobody here judged",
                f"merge it into {branch}, or delete the branch there; then resolve",
            )
        pushed, said = push_branch(repository, remote, branch, there, head)
        if pushed is Pushed.DONE:
            return None
        if pushed is Pushed.MOVED:
            return ForgeStop(f"{branch} at the forge was moved meanwhile", "see who pushed there, then resolve")
        return ForgeStop(f"the forge refuses the push of {branch}: {said}", "see its rules for branches, then resolve")

    def opened(self, branch: str, base: str, title: str, body: str) -> Pull | ForgeStop:
        """The pull request that shows a branch: the one that is there, brought up to date, or a new one."""
        settings, forge = self.project.config.merge, self.at.forge
        short = title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 3]}..."
        wanted = Wanted(branch, base, short, body, settings.draft, settings.reviewers, settings.labels)
        for _ in range(2):  # the answer to a creation may have been lost: then it is found
            found = next(iter(forge.find(branch, base)), None)
            if found is not None and found.state is PullState.OPEN:
                if self.marker not in found.body:
                    return ForgeStop(f"{found.url} was opened from {branch} by somebody else", "close it, then resolve")
                return found if found.body == body and not found.draft else forge.update(found, wanted)
            made = forge.create(wanted)
            if made is not None:
                return made
        return ForgeStop("the forge says that there is a pull request and shows none", "look there, then resolve")

    def answer(self, pull: Pull, due: Iterable[RemarkTaken], head: str) -> None:
        """Each remark of the round gets its answer once: one that is there already is not repeated."""
        due = tuple(due)
        said = "\n".join(one.text for one in self.at.forge.look(pull.number).remarks) if due else ""
        for remark in due:
            marker = marker_of(self._id, remark.id)
            if marker not in said:
                self.at.forge.answer(pull.number, remark.thread, f"Done in {head}.\n\n{marker}")

    def holds(self, branch: str, commit: str) -> str:
        """The head of a branch at the forge if it has this commit in its history; else empty."""
        repository = self.project.repository
        tip = fetch_branch(repository, self.at.remote, branch)
        is_there = tip and commit and commit_of(repository, commit) is not None
        return tip if is_there and is_ancestor(repository, commit, tip) else ""


def title_of(name: str, text: str) -> str:
    """A title in which a forge finds nothing to do."""
    return f"{name}: {defused(' '.join(text.split()))}"
