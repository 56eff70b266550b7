"""Read the documents of a feature's folder: regular files of limited size only."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from phasegate.core.paths.repo_path import find_path_problem
from phasegate.core.plan.consistency import (
    SPEC_FILE,
    TASKS_FILE,
    ConsistencyReport,
    FeatureDocuments,
    check_documents,
    extract_anchors,
)
from phasegate.core.plan.package_fields import ParsedPackage
from phasegate.core.plan.requirements import Spec, read_spec
from phasegate.core.plan.tasks import TaskList, parse_tasks
from phasegate.core.plan.work_package import is_safe_slug
from phasegate.core.text.finding import Finding, LocatedFinding
from phasegate.core.text.visible import escape_unprintable
from phasegate.core.text.yaml_nodes import MalformedDocument, split_front_matter
from phasegate.errors import ConfigError, UnreadableFile
from phasegate.files.block_reader import read_up_to
from phasegate.prompts.front_matter import read_yaml
from phasegate.prompts.package_reader import read_package as read_package

MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
_PACKAGE_FILE = re.compile(r"WP[0-9]+(?:-[^/]*)?\.md")


class UnreadableDocument(Exception):
    """A document that is not a readable text file; the finding has the reason."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.finding = Finding(line, "unreadable", message)


def read_document_text(path: Path) -> str:
    """Read the text of a regular file.

    Links are not followed and pipes do not block, because agents write these folders.
    """
    try:
        data, _ = read_up_to(path, MAX_DOCUMENT_BYTES + 1, follow_links=False)
    except UnreadableFile as error:
        raise UnreadableDocument(f"cannot be read: {error.reason}") from error

    if len(data) > MAX_DOCUMENT_BYTES:
        raise UnreadableDocument(f"is larger than {MAX_DOCUMENT_BYTES} bytes")

    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableDocument(
            "is not UTF-8 text", data.count(b"\n", 0, error.start) + 1
        ) from error


def check_feature_path(path: Path) -> ConsistencyReport:
    """Check a document, a feature's folder, or a folder of such folders.

    Findings have paths below the given one.
    """
    if not path.exists():
        raise ConfigError(
            f"{escape_unprintable(str(path))} does not exist",
            "pass a document or a feature's folder",
        )

    if not path.is_dir():
        target = path.resolve() if path.is_symlink() else path
        report = check_documents(read_feature(target.parent, only=target.name))
        if _is_spec(target.name):
            report = _rename_spec(report, target.name)

        notes = tuple(note for note in report.notes if note.path == target.name)
        return _prefix_paths(target.parent, replace(report, notes=notes))

    if _is_feature_folder(path):
        return _prefix_paths(path, check_documents(read_feature(path)))

    features = sorted(
        folder
        for folder in path.iterdir()
        if not folder.is_symlink() and _is_feature_folder(folder)
    )
    if not features:
        raise ConfigError(
            f"{escape_unprintable(str(path))} has no {SPEC_FILE}, {TASKS_FILE} or tasks/WPnn.md",
            "pass a feature's folder",
        )

    return _merge_reports(
        [_prefix_paths(folder, check_documents(read_feature(folder))) for folder in features]
    )


def is_feature_document(path: str) -> bool:
    """Return True if a path below a feature's folder is one of the documents that are read."""
    return path in (SPEC_FILE, TASKS_FILE) or (
        path.startswith("tasks/") and bool(_PACKAGE_FILE.fullmatch(path[6:]))
    )


def _is_feature_folder(path: Path) -> bool:
    return any((path / name).exists() for name in (SPEC_FILE, TASKS_FILE)) or bool(
        _list_package_files(path)
    )


def _is_spec(name: str) -> bool:
    """Return True if a document that was passed by itself is read as a specification."""
    return not _PACKAGE_FILE.fullmatch(name) and name != TASKS_FILE


def _list_package_files(folder: Path) -> list[str]:
    tasks = folder / "tasks"
    if tasks.is_symlink() or not tasks.is_dir():
        return []
    return sorted(
        f"tasks/{entry.name}" for entry in os.scandir(tasks) if _PACKAGE_FILE.fullmatch(entry.name)
    )


def read_feature(folder: Path, only: str = "") -> FeatureDocuments:
    """Read the documents of a feature's folder, or only one of them.

    Problems are reported in each document's findings.
    """
    if only and _is_spec(only):
        return FeatureDocuments(
            slug="", spec=_read_spec(folder / only), tasks=None, packages={}, headings={}
        )

    if only and only != TASKS_FILE:
        return FeatureDocuments(
            slug="",
            spec=None,
            tasks=None,
            packages={only: _read_package(folder / only, "")},
            headings={},
        )

    slug = folder.resolve().name
    if not is_safe_slug(slug):
        slug = ""

    tasks = None
    if only or (folder / TASKS_FILE).exists():
        tasks = _read_tasks(folder / TASKS_FILE)

    spec = None
    if (folder / SPEC_FILE).exists():
        spec = _read_spec(folder / SPEC_FILE)

    names = [] if only else _list_package_files(folder)
    packages = {name: _read_package(folder / name, slug) for name in names}

    return FeatureDocuments(
        slug=slug, spec=spec, tasks=tasks, packages=packages, headings=_read_headings(folder, tasks)
    )


def _read_spec(path: Path) -> Spec:
    try:
        text = read_document_text(path)
        parts = split_front_matter(text)
    except (UnreadableDocument, MalformedDocument) as error:
        return Spec((), (error.finding,))
    return read_spec(parts.body, parts.body_line)


def _read_tasks(path: Path) -> TaskList:
    try:
        return parse_tasks(read_document_text(path), read_yaml)
    except UnreadableDocument as error:
        return TaskList((), {}, [error.finding])


def _read_package(path: Path, slug: str) -> ParsedPackage:
    try:
        return read_package(read_document_text(path), slug)
    except UnreadableDocument as error:
        return ParsedPackage(None, [error.finding])


def _read_headings(folder: Path, tasks: TaskList | None) -> Mapping[str, frozenset[str] | None]:
    """Read the headings of the documents that tasks refer to."""
    references = {
        reference.partition("#")[0]
        for task in (tasks.tasks if tasks else ())
        for reference in task.spec
    }
    found: dict[str, frozenset[str] | None] = {}

    for name in references:
        if name.endswith(".md") and not find_path_problem(name):
            try:
                found[name] = extract_anchors(read_document_text(folder / name))
            except UnreadableDocument:
                found[name] = None

    return found


def _rename_spec(report: ConsistencyReport, name: str) -> ConsistencyReport:
    """Return the report of a specification that has another name than spec.md."""
    findings, notes = (
        tuple(replace(item, path=name) for item in items)
        for items in (report.findings, report.notes)
    )
    return replace(report, findings=findings, notes=notes)


def _prefix_paths(folder: Path, report: ConsistencyReport) -> ConsistencyReport:
    """Return the report with paths that the user can open."""

    def prefix(items: tuple[LocatedFinding, ...]) -> tuple[LocatedFinding, ...]:
        return tuple(
            replace(item, path=escape_unprintable(str(folder / item.path))) for item in items
        )

    return replace(report, findings=prefix(report.findings), notes=prefix(report.notes))


def _merge_reports(reports: list[ConsistencyReport]) -> ConsistencyReport:
    return ConsistencyReport(
        findings=tuple(found for report in reports for found in report.findings),
        notes=tuple(note for report in reports for note in report.notes),
        requirements=sum(report.requirements for report in reports),
        tasks=sum(report.tasks for report in reports),
        packages=sum(report.packages for report in reports),
    )
