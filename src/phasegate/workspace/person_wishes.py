"""What the person's git would do at a commit of theirs: sign it, and run hooks."""

from __future__ import annotations

import os
from typing import NamedTuple

from phasegate.git import run_as_the_person
from phasegate.workspace.merge import Prepared
from phasegate.workspace.objects import Signature
from phasegate.workspace.repository import Repository

_HOOKS = ("pre-commit", "prepare-commit-msg", "commit-msg", "pre-merge-commit")


class Unsigned(NamedTuple):
    """A commit that is to be signed could not be."""

    reason: str


def signed(repository: Repository, made: Prepared, message: str, signature: Signature) -> Prepared | Unsigned:
    """The merge, signed as the person's settings ask for it: the same tree and parents. Their program makes it."""
    asked = run_as_the_person(repository.root, "config", "--type=bool", "--get", "commit.gpgsign")
    if asked.stdout.strip() != b"true":
        return made
    who, when = signature.who, f"{signature.when_s} {signature.zone}"
    env = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in _fields(who, when)}
    parents = ("-p", made.expected, "-p", made.source)
    said = run_as_the_person(
        repository.root, "commit-tree", made.tree, *parents, "-S", "-F", "-", env=env, stdin=message.encode()
    )
    commit = said.stdout.decode(errors="replace").strip()
    if said.ok and commit:
        return made._replace(commit=commit)
    return Unsigned(said.stderr.decode(errors="replace").strip()[:500] or "git gave no reason")


def _fields(who: tuple[str, str], when: str) -> tuple[tuple[str, str], ...]:
    return ("NAME", who[0]), ("EMAIL", who[1]), ("DATE", when)


def commit_hooks(repository: Repository) -> tuple[str, ...]:
    """The hooks that the person's git would run at a commit."""
    said = run_as_the_person(repository.root, "rev-parse", "--path-format=absolute", "--git-path", "hooks")
    folder = os.fsdecode(said.stdout).strip()
    return tuple(name for name in _HOOKS if said.ok and os.access(f"{folder}/{name}", os.X_OK))
