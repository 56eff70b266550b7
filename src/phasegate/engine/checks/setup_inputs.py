"""The files that a setup could read, as far as the files that it starts from name them.

A command names a script, the script a helper, the helper a list. What is not found this way, and
not by its name (`is_setup_input`), is taken not to matter for what a setup makes.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

from phasegate.checks.plan import CommandPlan
from phasegate.checks.setup_cache import is_setup_input
from phasegate.engine.project.project import Project
from phasegate.workspace.commit_log import list_blobs
from phasegate.workspace.repository import read_blobs

MAX_FILES = 400
_MAX_FILE_BYTES = 200_000
_PATH_PATTERN = re.compile(r"[\w@+-][\w./@+-]*|\.{1,2}/[\w./@+-]+")


def find_setup_inputs(
    project: Project, commits: Iterable[str], plan: CommandPlan
) -> frozenset[str]:
    """The paths, from the repository's root, whose change between these commits can change what the
    setup makes.
    """
    head = f"{plan.root}/" if plan.root else ""
    # Each path with its contents
    own: dict[str, set[str]] = {}
    for commit in commits:
        for path, blob in list_blobs(project.repository, commit, include_links=False).items():
            if path.startswith(head):
                own.setdefault(path.removeprefix(head), set()).add(blob)

    lines = [plan.commands.get("setup", ""), *(candidate.command for candidate in plan.setups)]
    found = {path for path in own if is_setup_input(path, plan)} | _find_named_files(lines, "", own)
    pending = sorted(found)

    while pending and len(found) < MAX_FILES:
        contents = read_blobs(
            project.repository.place(), [blob for path in pending for blob in own[path]]
        )
        new: set[str] = set()

        for path in pending:
            texts = [
                contents[blob].decode(errors="replace")
                for blob in own[path]
                if len(contents[blob]) <= _MAX_FILE_BYTES
            ]
            new |= _find_named_files(texts, path.rpartition("/")[0], own)

        pending = sorted(new - found)
        found |= new

    return frozenset(f"{head}{path}" for path in found)


def _find_named_files(texts: list[str], folder: str, known_paths: Container[str]) -> set[str]:
    """The files whose path stands in a text.

    From the root, or from the folder of the file that names it.
    """
    found = set()
    for word in {word for text in texts for word in _PATH_PATTERN.findall(text)}:
        plain = word.removeprefix("./").rstrip(".")
        found |= {path for path in (plain, f"{folder}/{plain}".lstrip("/")) if path in known_paths}

    return found
