"""Determine what kind of repository a folder is in, and whether it can be initialized.

This module runs no git and imports little, because `init` must be fast.
"""

from __future__ import annotations

import os

from phasegate.core.text.light_tuple import Light
from phasegate.errors import ConfigError

_MAX_HEAD_BYTES = 4096


class RepositoryInfo(Light):
    """A repository with a working tree."""

    root: str
    git_dir: str
    # None if HEAD is detached
    branch: str | None
    has_commits: bool
    # The repository of which this one is a submodule
    superproject: str | None


def find_repository(start: str) -> RepositoryInfo:
    """Return the repository of a folder; raise an error with a hint if there is none."""
    folder = os.path.realpath(start)

    while not os.path.lexists(f"{folder}/.git"):
        reject_git_directory(folder)
        parent = os.path.dirname(folder)
        if parent == folder:
            raise ConfigError(f"{start} is not in a git repository", "create one here: git init")

        folder = parent

    git_dir = _find_git_dir(folder)
    branch = _read_branch(git_dir)

    return RepositoryInfo(
        folder, git_dir, branch, _has_commit(git_dir, branch), _find_superproject(git_dir)
    )


def reject_git_directory(folder: str) -> None:
    """Raise an error if a folder is a git directory or a bare repository.

    The hint names the folder with the working tree.
    """
    if not (
        os.path.isfile(f"{folder}/HEAD")
        and os.path.isdir(f"{folder}/objects")
        and os.path.isdir(f"{folder}/refs")
    ):
        return

    if os.path.basename(folder) == ".git":
        raise ConfigError(
            f"{folder} is a git directory",
            f"run this in its checkout: {_init_command(os.path.dirname(folder))}",
        )

    what = f"{folder} is a bare repository: it has no files to work on"
    raise ConfigError(
        what, f"clone it, then run init in the clone: git clone {_shell_quote(folder)} DIR"
    )


def _find_git_dir(root: str) -> str:
    """Return the git directory of a working tree.

    A linked worktree is refused, because settings belong to the main one.
    """
    dot_git = f"{root}/.git"
    main = os.path.dirname(os.path.dirname(root))

    if os.path.basename(os.path.dirname(root)) == ".worktrees" and os.path.lexists(f"{main}/.git"):
        raise ConfigError(
            f"{root} is the checkout of a work package",
            f"prepare the repository itself: {_init_command(main)}",
        )

    if os.path.isdir(dot_git):
        found = dot_git
    else:
        found = _read_gitdir_link(dot_git)

    if os.path.isfile(f"{found}/commondir"):
        _reject_linked_worktree(root, found)
    if not os.path.isfile(f"{found}/HEAD"):
        raise ConfigError(
            f"{dot_git} does not point to a git directory", "check it with: git status"
        )

    if any(
        line.replace(" ", "").strip().lower() == "bare=true"
        for line in _read_text(f"{found}/config").splitlines()
    ):
        what = f"{root} is a bare repository: git sees no files here"
        raise ConfigError(what, "fix it: git config core.bare false")

    return found


def _read_gitdir_link(dot_git: str) -> str:
    text = _read_text(dot_git)
    if not text.startswith("gitdir:"):
        raise ConfigError(
            f"{dot_git} does not point to a git directory", "check it with: git status"
        )
    return os.path.realpath(
        os.path.join(os.path.dirname(dot_git), text.removeprefix("gitdir:").strip())
    )


def _reject_linked_worktree(root: str, worktree_git_dir: str) -> None:
    """Raise ConfigError that names the main worktree."""
    common = os.path.realpath(
        os.path.join(worktree_git_dir, _read_text(f"{worktree_git_dir}/commondir").strip())
    )
    is_plain = os.path.basename(common) == ".git"
    if is_plain:
        where = _init_command(os.path.dirname(common))
    else:
        where = "list the worktrees with: git worktree list"

    raise ConfigError(
        f"{root} is a linked worktree",
        f"prepare the main worktree; its settings apply to all: {where}",
    )


def _init_command(folder: str) -> str:
    return f"cd {_shell_quote(folder)} && phasegate init"


def _shell_quote(path: str) -> str:
    # Imported here because only errors need it
    from shlex import quote

    return quote(path)


def _read_branch(git_dir: str) -> str | None:
    head = _read_text(f"{git_dir}/HEAD").strip()
    if head.startswith("ref: refs/heads/"):
        return head.removeprefix("ref: refs/heads/")
    return None


def _has_commit(git_dir: str, branch: str | None) -> bool:
    """Return True if HEAD points to a commit.

    Refs in the reftable format are not parsed; a commit is assumed to exist.
    """
    if (
        branch is None
        or os.path.isdir(f"{git_dir}/reftable")
        or os.path.isfile(f"{git_dir}/refs/heads/{branch}")
    ):
        return True

    lines = _read_text(f"{git_dir}/packed-refs", max_bytes=64_000_000).splitlines()
    return any(line.endswith(f" refs/heads/{branch}") for line in lines)


def _find_superproject(git_dir: str) -> str | None:
    around, found, _ = git_dir.partition("/.git/modules/")
    if found:
        return around
    return None


def _read_text(path: str, max_bytes: int = _MAX_HEAD_BYTES) -> str:
    """Return the beginning of a file; empty if there is none."""
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.read(max_bytes))
    except OSError:
        return ""
