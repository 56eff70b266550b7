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

from phasegate.checks.command_runner import CagedRunner
from phasegate.checks.plan import Command
from phasegate.core.detection.files import LARGEST_MANIFEST_BYTES, ProjectFiles, is_manifest
from phasegate.core.detection.model import PROGRAMS, PYTHONS, Detected, Machine
from phasegate.core.detection.project_kind import kind_of_root
from phasegate.core.detection.python import required_python
from phasegate.core.detection.python_tests import TEST_FUNCTION, is_test_file
from phasegate.core.detection.roots import candidate_roots, detect_project, project_roots, under
from phasegate.core.text.versions import allows
from phasegate.engine.project.project import Project
from phasegate.sandbox.environment import safe_path
from phasegate.workspace.commit_log import blobs_of
from phasegate.workspace.repository import read_blobs

MOST_TEST_FILES = 3_000
_ASK_VERSIONS = (
    "for name in {names}; do command -v $name >/dev/null || continue; "
    'version=$($name -c "import sys; print(*sys.version_info[:2])" 2>/dev/null) && echo "$name $version"; done'
)


class SeenRoot(NamedTuple):
    """What detection found at a root of a tree, and how many test functions its test files have."""

    detected: Detected | None
    test_functions: int | None


def look_at(
    project: Project, commit: str, kinds: Mapping[str, str] | None = None, named: str | None = None
) -> dict[str, SeenRoot]:
    """The roots of a commit's tree, and what each is. `kinds` says it of some, `named` of all that no file tells."""
    files = files_at(project, commit)
    kinds = kinds or {}
    wanted = {*kinds, *(table.root for table in project.config.checks.values() if table.root is not None)}
    roots = project_roots(files, wanted)
    if named and not kinds:
        told = {root: kind_of_root(under(files, root, roots).paths) for root in roots}
        roots = tuple(root for root in roots if told[root] == named) or ("",)
        kinds = dict.fromkeys(roots, named)
    return {root: _seen(under(files, root, roots), kinds.get(root)) for root in roots}


def _seen(files: ProjectFiles, kind: str | None) -> SeenRoot:
    is_python = (kind_of_root(files.paths) if kind is None else kind) == "python"
    detected = detect_project(files, machine(files if is_python else None), kind)
    counted = sum(len(TEST_FUNCTION.findall(text)) for path, text in files.texts.items() if is_test_file(path))
    return SeenRoot(detected, counted if is_python else None)


def files_at(project: Project, commit: str) -> ProjectFiles:
    """The paths of a commit, with the texts of its roots' manifests and of its Python test files."""
    blobs = blobs_of(project.repository, commit, links=False)
    named = [table.root for table in project.config.checks.values() if table.root]
    heads = [f"{root}/" if root else "" for root in (*candidate_roots(blobs), *named)]
    tests = [path for path in blobs if is_test_file(path)][:MOST_TEST_FILES]
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
