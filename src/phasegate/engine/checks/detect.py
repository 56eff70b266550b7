"""Detect the projects in a commit, and the programs of this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from phasegate.checks.command_runner import SandboxedRunner
from phasegate.checks.plan import Command
from phasegate.core.detection.files import MAX_MANIFEST_BYTES, ProjectFiles, is_manifest
from phasegate.core.detection.model import (
    PROBED_PROGRAMS,
    PYTHON_COMMANDS,
    DetectedProject,
    MachineInfo,
)
from phasegate.core.detection.project_kind import detect_root_kind
from phasegate.core.detection.python import find_required_python
from phasegate.core.detection.python_tests import TEST_FUNCTION, is_test_file
from phasegate.core.detection.roots import (
    detect_project,
    find_candidate_roots,
    find_project_roots,
    select_root_files,
)
from phasegate.core.text.versions import is_version_allowed
from phasegate.engine.project.project import Project
from phasegate.sandbox.environment import filter_search_path
from phasegate.workspace.repository.commit_log import list_blobs
from phasegate.workspace.repository.repository import read_blobs

MAX_TEST_FILES = 3_000
_VERSIONS_SCRIPT = (
    "for name in {names}; do command -v $name >/dev/null || continue; "
    'version=$($name -c "import sys; print(*sys.version_info[:2])" 2>/dev/null) '
    '&& echo "$name $version"; done'
)


class DetectedRoot(NamedTuple):
    """The detected project at a root of a tree, and the number of its test functions."""

    detected: DetectedProject | None
    test_functions: int | None


def detect_roots(
    project: Project,
    commit: str,
    kinds: Mapping[str, str] | None = None,
    default_kind: str | None = None,
) -> dict[str, DetectedRoot]:
    """Detect the projects in a commit's tree, by root.

    `kinds` sets the kind of some roots; `default_kind` that of all others without marker files.
    """
    files = read_project_files(project, commit)
    kinds = kinds or {}
    wanted = {
        *kinds,
        *(table.root for table in project.config.checks.values() if table.root is not None),
    }
    roots = find_project_roots(files, wanted)

    if default_kind and not kinds:
        roots = tuple(
            root
            for root in roots
            if detect_root_kind(select_root_files(files, root, roots).paths) == default_kind
        ) or ("",)
        kinds = dict.fromkeys(roots, default_kind)

    return {
        root: _detect_root(select_root_files(files, root, roots), kinds.get(root)) for root in roots
    }


def _detect_root(files: ProjectFiles, kind: str | None) -> DetectedRoot:
    is_python = (detect_root_kind(files.paths) if kind is None else kind) == "python"
    detected = detect_project(files, inspect_machine(files if is_python else None), kind)
    if not is_python:
        return DetectedRoot(detected, None)

    test_functions = sum(
        len(TEST_FUNCTION.findall(text)) for path, text in files.texts.items() if is_test_file(path)
    )
    return DetectedRoot(detected, test_functions)


def read_project_files(project: Project, commit: str) -> ProjectFiles:
    """Return the paths of a commit, with the texts of its manifests and Python test files."""
    blobs = list_blobs(project.repository, commit, include_links=False)
    configured = [table.root for table in project.config.checks.values() if table.root]
    prefixes = [f"{root}/" if root else "" for root in (*find_candidate_roots(blobs), *configured)]
    tests = [path for path in blobs if is_test_file(path)][:MAX_TEST_FILES]
    manifests = [
        path
        for path in blobs
        if any(
            path.startswith(prefix) and is_manifest(path.removeprefix(prefix))
            for prefix in prefixes
            if path.count("/") < prefix.count("/") + 3
        )
    ]

    wanted = {path: blobs[path] for path in (*manifests, *tests)}
    contents = read_blobs(project.repository.place(), wanted.values())
    texts = {
        path: contents[blob].decode(errors="replace")
        for path, blob in wanted.items()
        if len(contents[blob]) <= MAX_MANIFEST_BYTES
    }

    return ProjectFiles(frozenset(blobs), texts)


def inspect_machine(python_project: ProjectFiles | None) -> MachineInfo:
    """Find the programs on PATH.

    The versions of Python interpreters are only determined for a Python project.
    """
    path = filter_search_path(os.environ.get("PATH", ""))
    programs = frozenset(program for program in PROBED_PROGRAMS if shutil.which(program, path=path))
    if python_project is None:
        return MachineInfo(programs, {})

    pythons = _find_pythons(path, PYTHON_COMMANDS[:1])
    required = find_required_python(python_project)
    is_pinned = bool(python_project.get_text(".python-version").strip())
    fits = any(is_version_allowed(required, version) for version in pythons.values())
    if is_pinned or not fits:
        pythons = {**pythons, **_find_pythons(path, PYTHON_COMMANDS[1:])}

    return MachineInfo(programs, pythons)


@cache
def _find_pythons(path: str, wanted: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """Return the interpreters that start. The shims of a version manager may not."""
    names = [name for name in wanted if shutil.which(name, path=path)]
    with tempfile.TemporaryDirectory(prefix="phasegate-python-") as temporary:
        folder = Path(temporary).resolve()
        (folder / "work").mkdir()
        line = _VERSIONS_SCRIPT.format(names=" ".join(names))
        run = SandboxedRunner(folder / "job", f"python-{uuid4().hex}")
        result = run(
            Command(
                argv=("sh", "-c", line),
                cwd=folder / "work",
                env={},
                path_prefix=(),
                network=False,
                timeout_s=30.0,
            )
        )

    versions = {}
    for line in result.stdout.splitlines():
        words = line.split()
        if len(words) == 3:
            versions[words[0]] = (int(words[1]), int(words[2]))

    return versions
