"""Show the current requirements with their tests: `trace --specs`, `show FR-X` and `drift`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from phasegate.core.plan.planning import classify_file
from phasegate.core.specs.bindings import find_named_tests, hash_target
from phasegate.core.specs.deltas import (
    apply_deltas,
    find_requirement,
    find_restatements,
    read_deltas,
    stamp_deltas,
)
from phasegate.core.specs.spec_file import (
    CurrentRequirement,
    MalformedSpec,
    compute_revision,
    render_requirement,
)
from phasegate.core.specs.test_results import JUnitCase, find_outcome, parse_junit
from phasegate.core.text.finding import suggest_closest
from phasegate.core.text.wording import pluralize
from phasegate.engine.project.current_specs import (
    CurrentSpecs,
    get_spec_path,
    read_current_specs,
    read_texts,
)
from phasegate.engine.project.project import Project
from phasegate.errors import ConfigError, UnreadableFile
from phasegate.files.block_reader import read_up_to
from phasegate.workspace.repository.commit_log import list_blobs
from phasegate.workspace.repository.refs import BRANCH_PREFIX
from phasegate.workspace.repository.repository import read_blobs, read_refs, resolve_commit

_MAX_REPORT_BYTES = 64 * 1024**2
_DELTA_EXAMPLE = '<!-- sk:fr id="FR-AUTH-001" change="modified" -->, the new text, <!-- /sk:fr -->'
_MAX_TEST_FILES = 20_000


class BindingView(msgspec.Struct, frozen=True):
    """A test or code of a requirement: its hash now, and when it was accepted."""

    kind: str
    target: str
    accepted: str
    # Empty if it does not exist
    now: str
    # Result in the report of the tests; empty without a report
    outcome: str = ""

    @property
    def state(self) -> str:
        """The state of the bound code or test: missing, named, accepted or changed."""
        if not self.now:
            return "missing"
        if not self.accepted:
            return "names it" if self.now == "named" else "never accepted"
        return "accepted" if self.accepted == self.now else "changed since it was accepted"


class SpecRequirementView(msgspec.Struct, frozen=True):
    """A current requirement, with its bindings and their problems."""

    id: str
    capability: str
    path: str
    title: str
    text: str
    revision: str
    bindings: tuple[BindingView, ...]
    problems: tuple[str, ...] = ()


class SpecsReport(msgspec.Struct, frozen=True):
    """All current requirements of a commit."""

    commit: str
    requirements: tuple[SpecRequirementView, ...]
    problems: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Return whether every requirement has its tests; False without requirements."""
        wrong = self.problems or any(one.problems for one in self.requirements)
        return bool(self.requirements) and not wrong


def trace_specs(project: Project, junit: Path | None = None) -> SpecsReport:
    """Check that each current requirement has a test, and that each test names a known one."""
    commit = require_head(project)
    current = require_specs(project, commit)
    results = read_results(junit) if junit else None
    named: dict[str, list[str]] = {}
    blobs = list_blobs(project.repository, commit, include_links=False)
    tests = [path for path in blobs if classify_file(path) == "tests"][:_MAX_TEST_FILES]
    texts = read_texts(project, commit, tests)
    for path, text in texts.items():
        for test in find_named_tests(path, text):
            named.setdefault(test.requirement, []).append(test.target)

    listed = [
        (capability, one)
        for capability, spec in current.specs.items()
        for one in spec.requirements.values()
    ]
    files = {**texts, **read_bound_files(project, commit, (one for _, one in listed))}
    requirements = tuple(
        _trace_requirement(project, files, capability, one, named.get(one.id, ()), results)
        for capability, one in listed
    )
    known = {one.id for one in requirements} | find_feature_requirements(project, blobs)
    unknown = [
        f"{targets[0]} names {id_}, which no specification has{suggest_closest(id_, known)}"
        for id_, targets in sorted(named.items())
        if id_ not in known
    ]
    return SpecsReport(commit, requirements, (*current.problems, *unknown))


def require_head(project: Project) -> str:
    """Return the commit that is checked out."""
    commit = resolve_commit(project.repository, "HEAD")
    if commit is None:
        raise ConfigError("this repository has no commit yet", "commit something first")
    return commit


def require_specs(project: Project, commit: str) -> CurrentSpecs:
    """Read the current specifications; refuse if there are none."""
    current = read_current_specs(project, commit)
    if not any(spec.requirements for spec in current.specs.values()) and not current.problems:
        folder = project.config.deliver.specs
        raise ConfigError(
            f"{folder}/ has no current specifications",
            "a merged feature writes them, or: phasegate spec import PATH",
        )
    return current


def read_results(path: Path) -> tuple[JUnitCase, ...]:
    """Read the JUnit report of a test run."""
    try:
        data, _ = read_up_to(path, _MAX_REPORT_BYTES, follow_links=True)
        return parse_junit(data.decode(errors="replace"))
    except (UnreadableFile, MalformedSpec) as error:
        raise ConfigError(f"{path}: {error}", "pass the JUnit report of the tests") from error


def find_feature_requirements(project: Project, blobs: dict[str, str]) -> set[str]:
    """Return the ids in the specifications of features: their tests may name them too."""
    prefix = f"{project.config.paths.features.rstrip('/')}/"
    wanted = [blob for path, blob in blobs.items() if path.startswith(prefix)]
    contents = read_blobs(project.repository.place(), wanted).values()
    texts = (content.decode(errors="replace") for content in contents)
    return {test.requirement for text in texts for test in find_named_tests("", text)}


def read_bound_files(
    project: Project, commit: str, requirements: Iterable[CurrentRequirement]
) -> dict[str, str]:
    """Return the texts of all files that requirements are bound to."""
    paths = {
        binding.target.partition("::")[0]
        for requirement in requirements
        for binding in requirement.all_bindings
    }
    return read_texts(project, commit, paths)


def view_bindings(
    requirement: CurrentRequirement, files: Mapping[str, str]
) -> tuple[BindingView, ...]:
    """Return the tests and code of a requirement, with their hashes in a tree."""
    return tuple(
        BindingView(
            kind=one.kind,
            target=one.target,
            accepted=one.accepted,
            now=hash_target(one.target, files),
        )
        for one in requirement.all_bindings
    )


def _trace_requirement(
    project: Project,
    files: Mapping[str, str],
    capability: str,
    requirement: CurrentRequirement,
    named: Iterable[str],
    results: tuple[JUnitCase, ...] | None,
) -> SpecRequirementView:
    """Link a current requirement to its bindings and test results."""
    bindings = list(view_bindings(requirement, files))
    known = {one.target for one in bindings}
    for target in dict.fromkeys(named):
        if target not in known:
            bindings.append(BindingView(kind="test", target=target, accepted="", now="named"))
    if results is not None:
        bindings = [
            msgspec.structs.replace(one, outcome=_find_outcome(one.target, results, files))
            if one.kind == "test"
            else one
            for one in bindings
        ]

    view = view_requirement(project, capability, requirement, bindings)
    return msgspec.structs.replace(view, problems=tuple(_find_problems(bindings)))


def _find_outcome(target: str, results: tuple[JUnitCase, ...], files: Mapping[str, str]) -> str:
    return find_outcome(target, results, files.get(target.partition("::")[0], ""))


def view_requirement(
    project: Project,
    capability: str,
    requirement: CurrentRequirement,
    bindings: Iterable[BindingView],
) -> SpecRequirementView:
    """Return a requirement with its bindings."""
    return SpecRequirementView(
        id=requirement.id,
        capability=capability,
        path=get_spec_path(project, capability),
        title=requirement.title,
        text=render_requirement(requirement),
        revision=compute_revision(requirement),
        bindings=tuple(bindings),
    )


def _find_problems(bindings: Iterable[BindingView]) -> Iterator[str]:
    tests = [one for one in bindings if one.kind == "test"]
    if not tests:
        yield "no test names it"
    for test in tests:
        if not test.now:
            yield f"{test.target} does not exist"
        elif test.outcome not in ("", "passed"):
            yield f"{test.target}: {test.outcome}"


def render_specs_report(report: SpecsReport) -> list[str]:
    """Render a report as text: a line for each requirement, its tests and its problems."""
    lines = []
    for one in report.requirements:
        lines.append(f"{one.id}  {one.title or _first_line(one)}  ({one.path})")
        lines += [f"  {bound.kind:<5} {bound.target}" for bound in one.bindings]
        lines += [f"  PROBLEM {problem}" for problem in one.problems]
    lines += [f"PROBLEM {problem}" for problem in report.problems]
    wrong = sum(bool(one.problems) for one in report.requirements) + len(report.problems)
    count = pluralize(len(report.requirements), "requirement")
    return [*lines, f"{count}: {pluralize(wrong, 'problem') if wrong else 'no problems'}"]


def _first_line(view: SpecRequirementView) -> str:
    lines = [line for line in view.text.splitlines() if line and not line.startswith("#")]
    return lines[0] if lines else ""


class RequirementDescription(msgspec.Struct, frozen=True):
    """A requirement as it applies now, and the changes of open features."""

    requirement: SpecRequirementView | None
    # By feature
    changes: dict[str, str]

    @property
    def lines(self) -> list[str]:
        """The description as text."""
        lines = _render_requirement_view(self.requirement) if self.requirement else []
        for slug, text in self.changes.items():
            lines += ["", f"{slug} changes it ({text})"]
        return "\n".join(lines).strip().split("\n")


def describe_requirement(project: Project, id_: str) -> RequirementDescription:
    """Describe a requirement; refuse one that neither the specifications nor a change has."""
    commit = require_head(project)
    found = find_requirement(read_current_specs(project, commit).specs, id_)
    changes = _find_open_changes(project, id_)
    if found is None and not changes:
        raise ConfigError(
            f"{id_} is not in the current specifications or in an open change",
            "list the current requirements: phasegate trace --specs; those of a feature: "
            "phasegate trace",
        )
    view = None
    if found:
        bindings = view_bindings(found[1], read_bound_files(project, commit, [found[1]]))
        view = view_requirement(project, found[0], found[1], bindings)
    return RequirementDescription(view, changes)


def check_proposal(project: Project, text: str) -> list[str]:
    """Check proposed changes against the current specifications and the open features.

    Return the problems, then the changes as a feature's spec.md needs them, with the revisions that
    they start from. Nothing is written.
    """
    specs = read_current_specs(project, require_head(project)).specs
    try:
        stamped = stamp_deltas(text, specs)
        deltas = read_deltas(stamped)
        restated = [*find_restatements(stamped, specs)]
    except MalformedSpec as error:
        raise ConfigError(f"the changes cannot be read: {error}", _DELTA_EXAMPLE) from error
    if not deltas and not restated:
        raise ConfigError("the text states no change", _DELTA_EXAMPLE)

    problems = (*apply_deltas(specs, deltas).problems, *restated)
    lines = [f"PROBLEM {one.describe()}" for one in problems]
    for target in dict.fromkeys(one.target for one in deltas):
        for slug in _find_open_changes(project, target):
            lines.append(f"PROBLEM {target}: {slug} changes this requirement too")
    return [*lines, *stamped.split("\n")]


def _find_open_changes(project: Project, id_: str) -> dict[str, str]:
    """Return the open features that change a requirement, with their texts."""
    changes = {}
    prefix = f"{BRANCH_PREFIX}feat/"
    for ref, commit in read_refs(project.repository, prefix).items():
        slug = ref.removeprefix(prefix)
        path = f"{project.config.paths.features}/{slug}/spec.md"
        text = read_texts(project, commit, [path]).get(path, "")
        try:
            deltas = read_deltas(text)
        except MalformedSpec:
            continue
        for delta in deltas:
            if id_ in (delta.target, delta.requirement.id):
                changes[slug] = f"{delta.change}: {render_requirement(delta.requirement)}"
    return changes


def _render_requirement_view(view: SpecRequirementView) -> list[str]:
    lines = [view.text, "", f"revision {view.revision} in {view.path}"]
    for bound in view.bindings:
        lines.append(f"{bound.kind}: {bound.target}: {bound.state}")
    return lines
