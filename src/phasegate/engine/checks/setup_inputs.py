"""Find the files that a setup may read.

The search follows names: a command names a script, the script a helper, the helper a list. A file
that is found neither this way nor by its own name (`is_setup_input`) is assumed not to influence
the setup. Prose never does, even if a manifest names it as its README.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

from phasegate.checks.plan import CommandPlan
from phasegate.checks.setup_cache import is_prose, is_setup_input
from phasegate.engine.project.project import Project
from phasegate.workspace.repository.commit_log import list_blobs
from phasegate.workspace.repository.repository import read_blobs

MAX_FILES = 400
_MAX_FILE_BYTES = 200_000
_PATH_PATTERN = re.compile(r"[\w@+-][\w./@+-]*|\.{1,2}/[\w./@+-]+")


def find_setup_inputs(
    project: Project, commits: Iterable[str], plan: CommandPlan
) -> frozenset[str]:
    """Return the paths that can influence the setup, relative to the repository's root."""
    prefix = f"{plan.root}/" if plan.root else ""
    # The blobs of every path in these commits
    blobs: dict[str, set[str]] = {}
    for commit in commits:
        for path, blob in list_blobs(project.repository, commit, include_links=False).items():
            name = path.removeprefix(prefix)
            if path.startswith(prefix) and (not is_prose(name) or is_setup_input(name, plan)):
                blobs.setdefault(name, set()).add(blob)

    lines = [plan.commands.get("setup", ""), *(candidate.command for candidate in plan.setups)]
    inputs = {path for path in blobs if is_setup_input(path, plan)}
    inputs |= _find_named_files(lines, "", blobs)
    pending = sorted(inputs)

    while pending and len(inputs) < MAX_FILES:
        contents = read_blobs(
            project.repository.place(), [blob for path in pending for blob in blobs[path]]
        )
        new: set[str] = set()

        for path in pending:
            texts = [
                contents[blob].decode(errors="replace")
                for blob in blobs[path]
                if len(contents[blob]) <= _MAX_FILE_BYTES
            ]
            new |= _find_named_files(texts, path.rpartition("/")[0], blobs)

        pending = sorted(new - inputs)
        inputs |= new

    return frozenset(f"{prefix}{path}" for path in inputs)


def _find_named_files(texts: list[str], folder: str, known_paths: Container[str]) -> set[str]:
    """Return the files whose path occurs in a text, relative to the root or to `folder`."""
    found = set()
    for word in {word for text in texts for word in _PATH_PATTERN.findall(text)}:
        plain = word.removeprefix("./").rstrip(".")
        found |= {path for path in (plain, f"{folder}/{plain}".lstrip("/")) if path in known_paths}

    return found
