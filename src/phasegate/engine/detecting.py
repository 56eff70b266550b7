"""What a commit of the repository looks like to detection, and what this machine offers."""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from phasegate.cage.environment import safe_path
from phasegate.checks.caged import CagedRunner
from phasegate.checks.plan import Command
from phasegate.engine.project import Project
from phasegate.rules.detection import PROGRAMS, PYTHONS, Detected, Machine
from phasegate.rules.project_files import LARGEST_MANIFEST_BYTES, ProjectFiles, is_manifest
from phasegate.rules.project_kinds import detect_project
from phasegate.rules.python_project import TEST_FUNCTION, is_test_file, required_python
from phasegate.rules.telling_files import kind_of_root
from phasegate.rules.version_range import allows
from phasegate.workspace.commit_log import blobs_of
from phasegate.workspace.repository import read_blobs

MOST_TEST_FILES = 3_000
_ASK_VERSIONS = (
    "for name in {names}; do command -v $name >/dev/null || continue; "
    'version=$($name -c "import sys; print(*sys.version_info[:2])" 2>/dev/null) && echo "$name $version"; done'
)


class SeenTree(NamedTuple):
    """What detection found in a tree, and how many test functions its test files have."""

    detected: Detected | None
    test_functions: int | None


def look_at(project: Project, commit: str, kind: str | None = None) -> SeenTree:
    """What a commit's tree is; `kind` is the profile that a person named."""
    files = files_at(project, commit)
    is_python = (kind_of_root(files.paths) if kind is None else kind) == "python"
    detected = detect_project(files, machine(files if is_python else None), kind)
    counted = sum(len(TEST_FUNCTION.findall(text)) for path, text in files.texts.items() if is_test_file(path))
    return SeenTree(detected, counted if is_python else None)


def files_at(project: Project, commit: str) -> ProjectFiles:
    """The paths of a commit, with the texts of its manifests and of its Python test files."""
    blobs = blobs_of(project.repository, commit, links=False)
    tests = [path for path in blobs if is_test_file(path)][:MOST_TEST_FILES]
    wanted = {path: blobs[path] for path in (*(path for path in blobs if is_manifest(path)), *tests)}
    contents = read_blobs(project.repository.place(), wanted.values())
    texts = {
        path: contents[blob].decode(errors="replace")
        for path, blob in wanted.items()
        if len(contents[blob]) <= LARGEST_MANIFEST_BYTES
    }
    return ProjectFiles(frozenset(blobs), texts)


def machine(python_project: ProjectFiles | None) -> Machine:
    """What is on the PATH of this process. Interpreters are only asked for their version where a project needs one."""
    path = safe_path(os.environ.get("PATH", ""))
    there = frozenset(program for program in PROGRAMS if shutil.which(program, path=path))
    if python_project is None:
        return Machine(there, {})
    default = _pythons(path, PYTHONS[:1])
    asked, named = required_python(python_project), python_project.text(".python-version").strip()
    fits = any(allows(asked, version) for version in default.values())
    return Machine(there, default if fits and not named else {**default, **_pythons(path, PYTHONS[1:])})


@cache
def _pythons(path: str, wanted: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """The interpreters that really start: a version manager has names for some that are not chosen."""
    names = [name for name in wanted if shutil.which(name, path=path)]
    with tempfile.TemporaryDirectory(prefix="phasegate-python-") as room:
        folder = Path(room).resolve()
        (folder / "work").mkdir()
        line = _ASK_VERSIONS.format(names=" ".join(names))
        run = CagedRunner(folder / "job", f"python-{uuid4().hex}")
        ran = run(Command(("sh", "-c", line), folder / "work", {}, (), False, 30.0))
    words = [line.split() for line in ran.stdout.splitlines()]
    return {name: (int(major), int(minor)) for name, major, minor in (row for row in words if len(row) == 3)}
