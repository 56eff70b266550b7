"""`trace`: follow a feature's requirements through its documents, branches and tests."""

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
from phasegate.core.plan.work_package import PackageState, WorkPackage, is_safe_slug
from phasegate.engine.journal.entries import FEATURE_STEP, read_feature_step
from phasegate.engine.journal.package import read_start_commits
from phasegate.engine.project.project import Project
from phasegate.errors import ConfigError
from phasegate.prompts.feature_folder import is_feature_document, read_feature
from phasegate.storage.reader import StoreReader, open_store_reader
from phasegate.storage.state_file import find_state_file, read_state_file
from phasegate.workspace.repository.commit_log import (
    changed_paths_by_commit,
    find_commits_mentioning,
    list_blobs,
)
from phasegate.workspace.repository.refs import BRANCH_PREFIX
from phasegate.workspace.repository.repository import (
    is_ancestor,
    read_blobs,
    read_refs,
    resolve_commit,
)
from phasegate.workspace.repository.rewrite import read_original_head

MAX_TEST_BYTES = 1_000_000


class TraceReport(NamedTuple):
    """Traced requirements, and the problems of documents that could not be read.

    Requirements and packages of unreadable documents are missing.
    """

    feature: str
    requirements: tuple[RequirementTrace, ...]
    problems: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Return whether every requirement is fully covered; False without requirements."""
        return (
            bool(self.requirements)
            and not self.problems
            and not any(one.missing for one in self.requirements)
        )


def trace_feature(project: Project, slug: str) -> TraceReport:
    """Find the documents, packages, commits and tests of each requirement of a feature."""
    reader = open_store_reader(project.location)
    events = _read_events(reader, slug)
    branches = _find_branches(project, slug, events)
    commits = _find_document_commits(project, slug, branches, events)
    feature = _read_documents(project, slug, commits)

    if feature.spec is None:
        places = [*(f"{commit[:12]} ({what})" for commit, what in commits.items()), "your files"]
        folder = f"{project.config.paths.features}/{slug}"
        raise ConfigError(
            f"{slug} has no {SPEC_FILE} with requirements; searched {folder} in "
            f"{', '.join(places)}",
            f"write {folder}/{SPEC_FILE}, see `phasegate spec check`",
        )

    if reader is None and not branches and (head := resolve_commit(project.repository, "HEAD")):
        # A clone that has only the feature's commits, for example in CI
        branches[f"feat/{slug}"] = head

    rows = reader.packages(slug) if reader else ()
    replaced = {row.id for row in rows if row.state == PackageState.REPLACED}
    packages = [
        reading.package
        for reading in feature.packages.values()
        if reading.package and reading.package.work_package_id not in replaced
    ]
    starts = read_start_commits(reader, slug) if reader else {}
    merged = _find_merge(project, events)
    # The merged commits are copies: those of the feature are the ones that the base got
    start = _find_first_parent(project, merged) if merged else ""
    works = [
        _trace_package(project, package, branches, start or starts.get(package.work_package_id))
        for package in packages
    ]
    return TraceReport(
        slug,
        trace_requirements(feature.spec.requirements, works),
        tuple(_describe_problems(feature)),
    )


def choose_feature(project: Project, wanted: str | None) -> str:
    """Return the given feature, else the active one, else the only one."""
    known = _list_features(project)

    if wanted is not None:
        if wanted not in known:
            raise ConfigError(
                f"there is no feature {wanted}", f"available: {', '.join(known) or 'none yet'}"
            )

        return wanted

    path = find_state_file(str(project.root))
    workflow = read_workflow_card(read_state_file(path) if path else None)
    if workflow and workflow.feature in known:
        return workflow.feature

    if not known:
        raise ConfigError(
            "there is no feature yet",
            'start one: phasegate run feature "...", or load one: phasegate plan load',
        )
    if len(known) > 1:
        raise ConfigError(
            "there are several features", f"choose with --feature: {', '.join(known)}"
        )

    return known[0]


def _list_features(project: Project) -> list[str]:
    """List the features that have a folder, a branch or a recorded workflow.

    A merged feature may only have the latter.
    """
    folders = []
    if project.features_folder.is_dir():
        folders = [path.name for path in project.features_folder.iterdir() if path.is_dir()]

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
    """Return a feature's branches; for a merged feature, the merge commit instead."""
    refs = read_refs(
        project.repository, f"{BRANCH_PREFIX}feat/{slug}", f"{BRANCH_PREFIX}feat/{slug}-WP*"
    )
    branches = {ref.removeprefix(BRANCH_PREFIX): commit for ref, commit in refs.items()}
    merged = _find_merge(project, events)
    if merged and f"feat/{slug}" not in branches:
        branches[f"feat/{slug}"] = merged

    return branches


def _find_merge(project: Project, events: Iterable[AnyFeatureEvent]) -> str:
    merged = next((event.commit for event in events if isinstance(event, Merged)), "")
    if merged and resolve_commit(project.repository, merged):
        return merged
    return ""


def _find_first_parent(project: Project, merge: str) -> str:
    return resolve_commit(project.repository, f"{merge}^1") or ""


def _find_document_commits(
    project: Project, slug: str, branches: Mapping[str, str], events: Iterable[AnyFeatureEvent]
) -> dict[str, str]:
    """Return the commits that may contain the feature's folder, with a description.

    A merge has only the one document that is delivered.
    """
    original = read_original_head(project.repository, slug)
    head = original or branches.get(f"feat/{slug}")
    written = [event.commit for event in events if isinstance(event, DocumentsWritten)]
    commits = {head: f"feat/{slug}, or its merge"} if head else {}
    if written and resolve_commit(project.repository, written[-1]):
        commits.setdefault(written[-1], "its last written documents")

    return commits


def _read_documents(project: Project, slug: str, commits: Iterable[str]) -> FeatureDocuments:
    """Read the feature's folder from the first commit with a specification, else from the files."""
    prefix = f"{project.config.paths.features.rstrip('/')}/{slug}/"

    for commit in commits:
        blobs = list_blobs(project.repository, commit)
        documents = {
            path.removeprefix(prefix): blob
            for path, blob in blobs.items()
            if path.startswith(prefix)
        }

        if SPEC_FILE in documents:
            return _read_documents_from_blobs(
                project,
                slug,
                {path: blob for path, blob in documents.items() if is_feature_document(path)},
            )

    return read_feature(project.find_feature_folder(slug))


def _read_documents_from_blobs(
    project: Project, slug: str, blobs_by_path: Mapping[str, str]
) -> FeatureDocuments:
    """Read the documents of a commit with the reader of the user's files, which needs a folder."""
    contents = read_blobs(project.repository.place(), blobs_by_path.values())
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / slug
        (folder / "tasks").mkdir(parents=True)
        for path, blob in blobs_by_path.items():
            (folder / path).write_bytes(contents[blob])
        return read_feature(folder)


def _trace_package(
    project: Project, package: WorkPackage, branches: Mapping[str, str], base: str | None
) -> PackageTraceData:
    """Collect the commits and tests of a package, from its branch or the feature's."""
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
    data = read_blobs(project.repository.place(), wanted.values())
    contents = {
        path: data[blob][:MAX_TEST_BYTES].decode(errors="replace") for path, blob in wanted.items()
    }

    return PackageTraceData(package, tuple(commits), contents)


def _find_package_commits(
    project: Project, package: WorkPackage, tip: str, base: str | None
) -> list[Commit]:
    """Return the commits that name the package and change its scope.

    The search starts where the package was started, if that is recorded. Otherwise it covers the
    whole history, in which an older feature's package with the same number may have changed the
    same file.
    """
    repository = project.repository
    name = package.work_package_id
    since = base if base is not None and is_ancestor(repository, base, tip) else None
    mentioning = find_commits_mentioning(repository, name, tip, since)
    unlabelled = find_unlabelled_commits(name, mentioning)
    candidates = [commit for commit in mentioning if commit not in unlabelled]
    changed = changed_paths_by_commit(repository, [commit.id for commit in candidates])
    scope = package.build_scope()

    return [
        commit for commit in candidates if any(scope.covers(path) for path in changed[commit.id])
    ]


def _describe_problems(feature: FeatureDocuments) -> Iterator[str]:
    for finding in feature.spec.findings if feature.spec else ():
        yield f"{SPEC_FILE}:{finding.line}: {finding.message}"
    for path, reading in feature.packages.items():
        yield from (f"{path}:{finding.line}: {finding.message}" for finding in reading.findings)
