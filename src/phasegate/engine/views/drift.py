"""Find requirements whose tests or code changed outside of a feature since they were accepted."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from phasegate.core.specs.bindings import extract_bound_text, hash_target
from phasegate.core.specs.sarif import SpecFinding
from phasegate.core.text.wording import pluralize
from phasegate.engine.project.current_specs import read_texts
from phasegate.engine.project.project import Project
from phasegate.engine.views.specs import (
    BindingView,
    read_bound_files,
    require_head,
    require_specs,
    view_bindings,
)
from phasegate.git import git
from phasegate.workspace.repository.repository import read_blobs
from phasegate.workspace.repository.rewrite import find_path

_MAX_COMMITS = 300


class DriftItem(msgspec.Struct, frozen=True):
    """A test or code of a requirement that is not as it was accepted."""

    requirement: str
    capability: str
    kind: str
    target: str
    # changed or removed
    change: str
    line: int = 1
    # The first commit that changed it, and its author
    commit: str = ""
    author: str = ""
    subject: str = ""

    def describe(self) -> str:
        """Return a line with the change and its commit."""
        what = f"{self.kind} {self.target} was {self.change} since it was accepted"
        if not self.commit:
            return what
        return f"{what}: {self.commit[:12]} {self.subject} ({self.author})"


class DriftReport(msgspec.Struct, frozen=True):
    """The drift of all current requirements of a commit."""

    commit: str
    requirements: int
    items: tuple[DriftItem, ...]
    # Requirements that are bound to no test: their drift cannot be seen
    without_test: tuple[str, ...] = ()
    # Tests and code that nobody has accepted, with their requirement: not watched either
    never_accepted: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Return whether nothing has drifted, and everything could be read."""
        return not self.items and not self.problems


def find_drift(project: Project) -> DriftReport:
    """Compare the tests and the code of each requirement with the accepted ones."""
    commit = require_head(project)
    current = require_specs(project, commit)
    files = read_bound_files(
        project,
        commit,
        (one for spec in current.specs.values() for one in spec.requirements.values()),
    )
    items: list[DriftItem] = []
    without_test = []
    never_accepted = []
    count = 0
    for capability, spec in current.specs.items():
        for requirement in spec.requirements.values():
            count += 1
            bindings = view_bindings(requirement, files)
            if not any(one.kind == "test" for one in bindings):
                without_test.append(requirement.id)
            for binding in bindings:
                if not binding.accepted:
                    never_accepted.append(f"{requirement.id}  {binding.kind} {binding.target}")
                elif binding.accepted != binding.now:
                    items.append(_explain(project, commit, capability, requirement.id, binding))

    return DriftReport(
        commit=commit,
        requirements=count,
        items=tuple(items),
        without_test=tuple(without_test),
        never_accepted=tuple(never_accepted),
        problems=current.problems,
    )


def _explain(
    project: Project, commit: str, capability: str, id_: str, binding: BindingView
) -> DriftItem:
    """Describe the change at a binding, its place and its commit."""
    path = binding.target.partition("::")[0]
    text = read_texts(project, commit, [path]).get(path, "")
    part = extract_bound_text(binding.target, text)
    line = 1
    if part:
        line += text.count("\n", 0, max(0, text.find(part.partition("\n")[0])))
    changed_by = _find_change(project, commit, binding)
    return DriftItem(
        requirement=id_,
        capability=capability,
        kind=binding.kind,
        target=binding.target,
        change="changed" if binding.now else "removed",
        line=line,
        commit=changed_by[0],
        author=changed_by[1],
        subject=changed_by[2],
    )


def _find_change(project: Project, commit: str, binding: BindingView) -> tuple[str, str, str]:
    """Return the first commit after the accepted version, with its author and subject."""
    path = binding.target.partition("::")[0]
    later = ("", "", "")
    for found in _list_commits(project, commit, path):
        blob = find_path(project.repository, found[0], path)
        data = read_blobs(project.repository.place(), [blob])[blob] if blob else b""
        if hash_target(binding.target, {path: data.decode(errors="replace")}) == binding.accepted:
            break
        later = found
    return later


def _list_commits(project: Project, commit: str, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield the commits that changed a path, newest first."""
    arguments = ("log", "-z", f"-{_MAX_COMMITS}", "--format=%H%n%an%n%s", commit, "--", path)
    shown = os.fsdecode(git(project.repository.place(), *arguments).stdout)
    for entry in shown.split("\0"):
        fields = entry.strip("\n").split("\n")
        if len(fields) == 3:
            yield fields[0], fields[1], fields[2]


def render_drift(report: DriftReport) -> list[str]:
    """Render a report as text: the drifted requirements, and how to accept them."""
    lines = [f"{item.requirement}  {item.describe()}" for item in report.items]
    lines += [f"PROBLEM {problem}" for problem in report.problems]
    lines += [f"{one} was never accepted, so not watched" for one in report.never_accepted]
    if report.without_test:
        lines.append(f"without a test, so not watched: {', '.join(report.without_test)}")
    drifted = len({item.requirement for item in report.items})
    total = pluralize(report.requirements, "requirement")
    lines.append(f"{drifted} of {total} drifted")
    if drifted or report.never_accepted:
        lines.append('if it is right as it is: phasegate drift accept FR-X "why"')
    return lines


def list_findings(report: DriftReport) -> list[SpecFinding]:
    """Return the drift as findings at lines of files."""
    return [
        SpecFinding(item.requirement, item.target.partition("::")[0], item.line, item.describe())
        for item in report.items
    ]
