"""`trace`: the requirements of a feature, followed through its documents, its branches and its
tests.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from phasegate.core.display.status import read_workflow_card
from phasegate.core.machine.feature_events import AnyFeatureEvent, DocumentsWritten, Merged
from phasegate.core.plan.commits import Commit, find_unlabelled_commits
from phasegate.core.plan.consistency import SPEC_FILE, FeatureDocuments
from phasegate.core.plan.planning import classify_file
from phasegate.core.plan.trace import PackageTraceData, RequirementTrace, trace_requirements
from phasegate.core.plan.work_package import WorkPackage, is_safe_slug
from phasegate.engine.journal.entries import FEATURE_STEP, read_feature_step
from phasegate.engine.journal.package import read_start_commits
from phasegate.engine.project.project import Project
from phasegate.errors import ConfigError
from phasegate.prompts.feature_folder import is_feature_document, read_feature
from phasegate.storage.reader import StoreReader, open_store_reader
from phasegate.storage.state_file import find_state_file, read_state_file
from phasegate.workspace.commit_log import (
    changed_paths_by_commit,
    find_commits_mentioning,
    list_blobs,
)
from phasegate.workspace.refs import BRANCH_PREFIX
from phasegate.workspace.repository import is_ancestor, read_blobs, read_refs, resolve_commit

MAX_TEST_BYTES = 1_000_000


class TraceReport(NamedTuple):
    """What was traced, and what could not be read.

    The requirements or packages in it are not counted.
    """

    feature: str
    requirements: tuple[RequirementTrace, ...]
    problems: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every requirement has all that it should; a feature without any has not."""
        return (
            bool(self.requirements)
            and not self.problems
            and not any(one.missing for one in self.requirements)
        )


def trace_feature(project: Project, slug: str) -> TraceReport:
    """Follow the requirements of a feature."""
    reader = open_store_reader(project.location)
    events = _read_events(reader, slug)
    branches = _find_branches(project, slug, events)
    commits = _find_document_commits(project, slug, branches, events)
    feature = _read_documents(project, slug, commits)

    if feature.spec is None:
        looked = ", ".join(
            [*(f"{commit[:12]} ({what})" for commit, what in commits.items()), "your files"]
        )
        folder = f"{project.config.paths.features}/{slug}"
        raise ConfigError(
            f"{slug} has no {SPEC_FILE}: it is where requirements are; {folder} was looked for in {looked}",
            f"write {folder}/{SPEC_FILE}, see `phasegate spec check`",
        )

    if reader is None and not branches and (head := resolve_commit(project.repository, "HEAD")):
        # A clone that knows the feature by its commits alone, in CI for instance
        branches[f"feat/{slug}"] = head

    packages = [reading.package for reading in feature.packages.values() if reading.package]
    if reader:
        began = read_start_commits(reader, slug)
    else:
        began = {}

    works = [
        _trace_package(project, package, branches, began.get(package.work_package_id))
        for package in packages
    ]
    return TraceReport(
        slug,
        trace_requirements(feature.spec.requirements, works),
        tuple(_describe_problems(feature)),
    )


def choose_feature(project: Project, wanted: str | None) -> str:
    """The feature that is meant: the one named, the active one, the only one."""
    known = _list_features(project)

    if wanted is not None:
        if wanted not in known:
            raise ConfigError(
                f"there is no feature {wanted}", f"known are: {', '.join(known) or 'none yet'}"
            )

        return wanted

    path = find_state_file(str(project.root))
    workflow = read_workflow_card(read_state_file(path) if path else None)
    if workflow and workflow.feature in known:
        return workflow.feature

    if len(known) != 1:
        begin = 'begin one: phasegate run feature "...", or load one: phasegate plan load'
        if known:
            hint = f"choose with --feature: {', '.join(known)}"
        else:
            hint = begin

        raise ConfigError(
            "several features are there" if known else "there is no feature yet", hint
        )

    return known[0]


def _list_features(project: Project) -> list[str]:
    """The features of which there is a folder, a branch, or a workflow on record.

    A merged one may have only that.
    """
    if project.features_folder.is_dir():
        folders = [path.name for path in project.features_folder.iterdir() if path.is_dir()]
    else:
        folders = []

    branches = [
        ref.removeprefix(f"{BRANCH_PREFIX}feat/")
        for ref in read_refs(project.repository, f"{BRANCH_PREFIX}feat/")
    ]
    return sorted(
        {
            name
            for name in (*folders, *branches, *_list_recorded_features(project))
            if is_safe_slug(name)
        }
    )


def _list_recorded_features(project: Project) -> list[str]:
    reader = open_store_reader(project.location)
    if reader is None:
        return []
    with reader:
        return [row.feature for row in reader.workflows()]


def _read_events(reader: StoreReader | None, slug: str) -> list[AnyFeatureEvent]:
    if reader:
        return [
            read_feature_step(one.payload)
            for one in reader.events(slug)
            if one.kind == FEATURE_STEP
        ]

    return []


def _find_branches(
    project: Project, slug: str, events: Iterable[AnyFeatureEvent]
) -> dict[str, str]:
    """The branches of a feature. Those of a merged one are gone: then the merge stands for them."""
    refs = read_refs(
        project.repository, f"{BRANCH_PREFIX}feat/{slug}", f"{BRANCH_PREFIX}feat/{slug}-WP*"
    )
    found = {ref.removeprefix(BRANCH_PREFIX): commit for ref, commit in refs.items()}
    merged = next((event.commit for event in events if isinstance(event, Merged)), None)
    if merged and f"feat/{slug}" not in found and resolve_commit(project.repository, merged):
        found[f"feat/{slug}"] = merged

    return found


def _find_document_commits(
    project: Project, slug: str, branches: Mapping[str, str], events: Iterable[AnyFeatureEvent]
) -> dict[str, str]:
    """The commits that may have the feature's folder, and what each is.

    A merge has none where it is not delivered.
    """
    head = branches.get(f"feat/{slug}")
    written = [event.commit for event in events if isinstance(event, DocumentsWritten)]
    if head:
        found = {head: f"feat/{slug}, or its merge"}
    else:
        found = {}

    if written and resolve_commit(project.repository, written[-1]):
        found.setdefault(written[-1], "its documents, as they were written last")

    return found


def _read_documents(project: Project, slug: str, commits: Iterable[str]) -> FeatureDocuments:
    """The feature's folder.

    In the first commit that has its specification, else in the person's files.
    """
    below = f"{project.config.paths.features.rstrip('/')}/{slug}/"

    for commit in commits:
        blobs = list_blobs(project.repository, commit)
        found = {
            path.removeprefix(below): blob for path, blob in blobs.items() if path.startswith(below)
        }

        if SPEC_FILE in found:
            return _read_from_blobs(
                project,
                slug,
                {path: blob for path, blob in found.items() if is_feature_document(path)},
            )

    return read_feature(project.features_folder / slug)


def _read_from_blobs(project: Project, slug: str, wanted: Mapping[str, str]) -> FeatureDocuments:
    contents = read_blobs(project.repository.place(), wanted.values())
    with tempfile.TemporaryDirectory() as room:
        folder = Path(room) / slug
        (folder / "tasks").mkdir(parents=True)
        for path, blob in wanted.items():
            (folder / path).write_bytes(contents[blob])
        return read_feature(folder)


def _trace_package(
    project: Project, package: WorkPackage, branches: Mapping[str, str], base: str | None
) -> PackageTraceData:
    """What there is of a package: on its own branch, else on the feature's."""
    tip = branches.get(package.branch) or branches.get(f"feat/{package.feature_slug}")
    if tip is None:
        return PackageTraceData(package, (), {})

    commits = _find_package_commits(project, package, tip, base)
    changed = {
        path
        for paths in changed_paths_by_commit(project.repository, [c.id for c in commits]).values()
        for path in paths
    }
    tests = {
        *package.deliverables.tests,
        *(path for path in changed if classify_file(path) == "tests"),
    }
    blobs = list_blobs(project.repository, tip)
    wanted = {path: blobs[path] for path in sorted(tests) if path in blobs}
    texts = read_blobs(project.repository.place(), wanted.values())
    shown = {
        path: texts[blob][:MAX_TEST_BYTES].decode(errors="replace") for path, blob in wanted.items()
    }

    return PackageTraceData(package, tuple(commits), shown)


def _find_package_commits(
    project: Project, package: WorkPackage, tip: str, base: str | None
) -> list[Commit]:
    """The commits that name the package and change something in its scope.

    From where it was begun on, if that is on record; else in all of the history, where an older
    feature's package of the same number may have touched the same file.
    """
    repository = project.repository
    name = package.work_package_id
    if base is not None and is_ancestor(repository, base, tip):
        since = base
    else:
        since = None

    logged = find_commits_mentioning(repository, name, tip, since)
    unnamed = find_unlabelled_commits(name, logged)
    candidates = [commit for commit in logged if commit not in unnamed]
    changed = changed_paths_by_commit(repository, [commit.id for commit in candidates])
    scope = package.build_scope()

    return [
        commit for commit in candidates if any(scope.covers(path) for path in changed[commit.id])
    ]


def _describe_problems(feature: FeatureDocuments) -> Iterator[str]:
    for found in feature.spec.findings if feature.spec else ():
        yield f"{SPEC_FILE}:{found.line}: {found.message}"
    for path, reading in feature.packages.items():
        yield from (f"{path}:{found.line}: {found.message}" for found in reading.findings)
