"""`trace`: the requirements of a feature, followed through its documents, its branches and its tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from phasegate.core.display.status import workflow_of
from phasegate.core.machine.feature_events import Happened, Merged, Written
from phasegate.core.plan.commits import Commit, unnamed_commits
from phasegate.core.plan.consistency import SPEC, FeatureDocuments
from phasegate.core.plan.planning import kind_of
from phasegate.core.plan.trace import Traced, TracedWork, trace
from phasegate.core.plan.work_package import WorkPackage, slug_is_safe
from phasegate.engine.journal.entries import FEATURE_STEP, read_feature_step
from phasegate.engine.journal.package import beginnings
from phasegate.engine.project.project import Project
from phasegate.errors import ConfigError
from phasegate.prompts.feature_folder import is_document, read_feature
from phasegate.storage.reader import Reader, read_store
from phasegate.storage.state_file import find_state, read_state
from phasegate.workspace.commit_log import blobs_of, commits_naming, paths_changed
from phasegate.workspace.refs import BRANCHES
from phasegate.workspace.repository import commit_of, is_ancestor, read_blobs, read_refs

LARGEST_TEST_CHARACTERS = 1_000_000


class Report(NamedTuple):
    """What was traced, and what could not be read: the requirements or packages in it are not counted."""

    feature: str
    requirements: tuple[Traced, ...]
    problems: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every requirement has all that it should; a feature without any has not."""
        return bool(self.requirements) and not self.problems and not any(one.missing for one in self.requirements)


def trace_feature(project: Project, slug: str) -> Report:
    """Follow the requirements of a feature."""
    reader = read_store(project.location)
    events = _events(reader, slug)
    branches = _branches(project, slug, events)
    commits = _with_documents(project, slug, branches, events)
    feature = _documents(project, slug, commits)
    if feature.spec is None:
        looked = ", ".join([*(f"{commit[:12]} ({what})" for commit, what in commits.items()), "your files"])
        folder = f"{project.config.paths.features}/{slug}"
        raise ConfigError(
            f"{slug} has no {SPEC}: it is where requirements are; {folder} was looked for in {looked}",
            f"write {folder}/{SPEC}, see `phasegate spec check`",
        )
    if reader is None and not branches and (head := commit_of(project.repository, "HEAD")):
        branches[f"feat/{slug}"] = head  # a clone that knows the feature by its commits alone, in CI for instance
    packages = [reading.package for reading in feature.packages.values() if reading.package]
    began = beginnings(reader, slug) if reader else {}
    works = [_work(project, package, branches, began.get(package.work_package_id)) for package in packages]
    return Report(slug, trace(feature.spec.requirements, works), tuple(_problems(feature)))


def choose_feature(project: Project, wanted: str | None) -> str:
    """The feature that is meant: the one named, the active one, the only one."""
    known = _known(project)
    if wanted is not None:
        if wanted not in known:
            raise ConfigError(f"there is no feature {wanted}", f"known are: {', '.join(known) or 'none yet'}")
        return wanted
    path = find_state(str(project.root))
    workflow = workflow_of(read_state(path) if path else None)
    if workflow and workflow.feature in known:
        return workflow.feature
    if len(known) != 1:
        begin = 'begin one: phasegate run feature "...", or load one: phasegate plan load'
        hint = f"choose with --feature: {', '.join(known)}" if known else begin
        raise ConfigError("several features are there" if known else "there is no feature yet", hint)
    return known[0]


def _known(project: Project) -> list[str]:
    """The features of which there is a folder, a branch, or a workflow on record: a merged one may have only that."""
    folders = [path.name for path in project.features.iterdir() if path.is_dir()] if project.features.is_dir() else []
    branches = [ref.removeprefix(f"{BRANCHES}feat/") for ref in read_refs(project.repository, f"{BRANCHES}feat/")]
    return sorted({name for name in (*folders, *branches, *_recorded(project)) if slug_is_safe(name)})


def _recorded(project: Project) -> list[str]:
    reader = read_store(project.location)
    if reader is None:
        return []
    with reader:
        return [row.feature for row in reader.workflows()]


def _events(reader: Reader | None, slug: str) -> list[Happened]:
    return [read_feature_step(one.payload) for one in reader.events(slug) if one.kind == FEATURE_STEP] if reader else []


def _branches(project: Project, slug: str, events: Iterable[Happened]) -> dict[str, str]:
    """The branches of a feature. Those of a merged one are gone: then the merge stands for them."""
    refs = read_refs(project.repository, f"{BRANCHES}feat/{slug}", f"{BRANCHES}feat/{slug}-WP*")
    found = {ref.removeprefix(BRANCHES): commit for ref, commit in refs.items()}
    merged = next((event.commit for event in events if isinstance(event, Merged)), None)
    if merged and f"feat/{slug}" not in found and commit_of(project.repository, merged):
        found[f"feat/{slug}"] = merged
    return found


def _with_documents(
    project: Project, slug: str, branches: Mapping[str, str], events: Iterable[Happened]
) -> dict[str, str]:
    """The commits that may have the feature's folder, and what each is. A merge has none where it is not delivered."""
    head = branches.get(f"feat/{slug}")
    written = [event.commit for event in events if isinstance(event, Written)]
    found = {head: f"feat/{slug}, or its merge"} if head else {}
    if written and commit_of(project.repository, written[-1]):
        found.setdefault(written[-1], "its documents, as they were written last")
    return found


def _documents(project: Project, slug: str, commits: Iterable[str]) -> FeatureDocuments:
    """The feature's folder: in the first commit that has its specification, else in the person's files."""
    below = f"{project.config.paths.features.rstrip('/')}/{slug}/"
    for commit in commits:
        blobs = blobs_of(project.repository, commit)
        found = {path.removeprefix(below): blob for path, blob in blobs.items() if path.startswith(below)}
        if SPEC in found:
            return _read(project, slug, {path: blob for path, blob in found.items() if is_document(path)})
    return read_feature(project.features / slug)


def _read(project: Project, slug: str, wanted: Mapping[str, str]) -> FeatureDocuments:
    contents = read_blobs(project.repository.place(), wanted.values())
    with tempfile.TemporaryDirectory() as room:
        folder = Path(room) / slug
        (folder / "tasks").mkdir(parents=True)
        for path, blob in wanted.items():
            (folder / path).write_bytes(contents[blob])
        return read_feature(folder)


def _work(project: Project, package: WorkPackage, branches: Mapping[str, str], base: str | None) -> TracedWork:
    """What there is of a package: on its own branch, else on the feature's."""
    tip = branches.get(package.branch) or branches.get(f"feat/{package.feature_slug}")
    if tip is None:
        return TracedWork(package, (), {})
    commits = _commits(project, package, tip, base)
    changed = {path for paths in paths_changed(project.repository, [c.id for c in commits]).values() for path in paths}
    tests = {*package.deliverables.tests, *(path for path in changed if kind_of(path) == "tests")}
    blobs = blobs_of(project.repository, tip)
    wanted = {path: blobs[path] for path in sorted(tests) if path in blobs}
    texts = read_blobs(project.repository.place(), wanted.values())
    shown = {path: texts[blob][:LARGEST_TEST_CHARACTERS].decode(errors="replace") for path, blob in wanted.items()}
    return TracedWork(package, tuple(commits), shown)


def _commits(project: Project, package: WorkPackage, tip: str, base: str | None) -> list[Commit]:
    """The commits that name the package and change something in its scope.

    From where it was begun on, if that is on record; else in all of the history, where an older feature's package of
    the same number may have touched the same file.
    """
    repository, name = project.repository, package.work_package_id
    since = base if base is not None and is_ancestor(repository, base, tip) else None
    logged = commits_naming(repository, name, tip, since)
    unnamed = unnamed_commits(name, logged)
    candidates = [commit for commit in logged if commit not in unnamed]
    changed, scope = paths_changed(repository, [commit.id for commit in candidates]), package.scope()
    return [commit for commit in candidates if any(scope.covers(path) for path in changed[commit.id])]


def _problems(feature: FeatureDocuments) -> Iterator[str]:
    for found in feature.spec.findings if feature.spec else ():
        yield f"{SPEC}:{found.line}: {found.message}"
    for path, reading in feature.packages.items():
        yield from (f"{path}:{found.line}: {found.message}" for found in reading.findings)
