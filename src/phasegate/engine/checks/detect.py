"""What a commit of the repository looks like to detection, and what this machine offers."""

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
from phasegate.workspace.commit_log import list_blobs
from phasegate.workspace.repository import read_blobs

MAX_TEST_FILES = 3_000
_VERSIONS_SCRIPT = (
    "for name in {names}; do command -v $name >/dev/null || continue; "
    'version=$($name -c "import sys; print(*sys.version_info[:2])" 2>/dev/null) && echo "$name $version"; done'
)


class DetectedRoot(NamedTuple):
    """What detection found at a root of a tree, and how many test functions its test files have."""

    detected: DetectedProject | None
    test_functions: int | None


def detect_roots(
    project: Project,
    commit: str,
    kinds: Mapping[str, str] | None = None,
    default_kind: str | None = None,
) -> dict[str, DetectedRoot]:
    """The roots of a commit's tree, and what each is.

    `kinds` says it of some, `named` of all that no file tells.
    """
    files = read_project_files(project, commit)
    kinds = kinds or {}
    wanted = {
        *kinds,
        *(table.root for table in project.config.checks.values() if table.root is not None),
    }
    roots = find_project_roots(files, wanted)

    if default_kind and not kinds:
        told = {
            root: detect_root_kind(select_root_files(files, root, roots).paths) for root in roots
        }
        roots = tuple(root for root in roots if told[root] == default_kind) or ("",)
        kinds = dict.fromkeys(roots, default_kind)

    return {
        root: _detect_root(select_root_files(files, root, roots), kinds.get(root)) for root in roots
    }


def _detect_root(files: ProjectFiles, kind: str | None) -> DetectedRoot:
    is_python = (detect_root_kind(files.paths) if kind is None else kind) == "python"
    detected = detect_project(files, inspect_machine(files if is_python else None), kind)
    counted = sum(
        len(TEST_FUNCTION.findall(text)) for path, text in files.texts.items() if is_test_file(path)
    )
    return DetectedRoot(detected, counted if is_python else None)


def read_project_files(project: Project, commit: str) -> ProjectFiles:
    """The paths of a commit, with the texts of its roots' manifests and of its Python test files."""
    blobs = list_blobs(project.repository, commit, include_links=False)
    named = [table.root for table in project.config.checks.values() if table.root]
    heads = [f"{root}/" if root else "" for root in (*find_candidate_roots(blobs), *named)]
    tests = [path for path in blobs if is_test_file(path)][:MAX_TEST_FILES]
    manifests = [
        path
        for path in blobs
        if any(
            path.startswith(head) and is_manifest(path.removeprefix(head))
            for head in heads
            if path.count("/") < head.count("/") + 3
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
    """What is on the PATH of this process.

    Interpreters are only asked for their version where a project needs one.
    """
    path = filter_search_path(os.environ.get("PATH", ""))
    there = frozenset(program for program in PROBED_PROGRAMS if shutil.which(program, path=path))
    if python_project is None:
        return MachineInfo(there, {})

    default = _find_pythons(path, PYTHON_COMMANDS[:1])
    asked = find_required_python(python_project)
    named = python_project.get_text(".python-version").strip()
    fits = any(is_version_allowed(asked, version) for version in default.values())

    return MachineInfo(
        there,
        default if fits and not named else {**default, **_find_pythons(path, PYTHON_COMMANDS[1:])},
    )


@cache
def _find_pythons(path: str, wanted: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """The interpreters that really start: a version manager has names for some that are not chosen."""
    names = [name for name in wanted if shutil.which(name, path=path)]
    with tempfile.TemporaryDirectory(prefix="phasegate-python-") as room:
        folder = Path(room).resolve()
        (folder / "work").mkdir()
        line = _VERSIONS_SCRIPT.format(names=" ".join(names))
        run = SandboxedRunner(folder / "job", f"python-{uuid4().hex}")
        ran = run(
            Command(
                argv=("sh", "-c", line),
                cwd=folder / "work",
                env={},
                path_prefix=(),
                network=False,
                timeout_s=30.0,
            )
        )

    words = [line.split() for line in ran.stdout.splitlines()]
    return {
        name: (int(major), int(minor))
        for name, major, minor in (row for row in words if len(row) == 3)
    }
