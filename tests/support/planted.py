"""States of a git directory or tree that make a careless program's own git run a command of somebody else's (D02)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from support.git_project import git, write

# What an orchestrator does that trusts its worktrees. Each may fail; what counts is whether the program ran.
CARELESS: tuple[tuple[str, ...], ...] = (
    ("status",),
    ("diff", "HEAD"),
    ("add", "-A"),
    ("commit", "-q", "--allow-empty", "-m", "WP01: work"),
    ("merge", "--no-edit", "other"),
    ("fetch", "--all"),
)


class Room:
    """Where a state is planted: the checkout, and the program that must never run."""

    def __init__(self, tree: Path, outside: Path) -> None:
        self.tree = tree
        self.outside = outside
        self.marker = outside / "ran"
        self.program = outside / "program"
        outside.mkdir()
        self.program.write_text(f"#!/bin/sh\necho ran >> {self.marker}\n")
        self.program.chmod(0o755)

    @property
    def git_dir(self) -> Path:
        return self.tree / ".git"

    def config(self, name: str, value: str) -> None:
        git(self.tree, "config", name, value)

    def attributes(self, line: str) -> None:
        (self.git_dir / "info/attributes").unlink()  # ours, which shuts them off
        write(self.tree, {".gitattributes": f"{line}\n"})

    def hook(self, folder: Path, *names: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copy(self.program, folder / name)

    def diverge(self) -> None:
        """Another branch that changed the same file, so that a merge has work to do."""
        git(self.tree, "checkout", "-q", "-b", "other")
        write(self.tree, {"src/auth.py": "def auth():\n    return 'other'\n"})
        git(self.tree, "commit", "-qam", "WP01: other")
        git(self.tree, "checkout", "-q", "-")
        write(self.tree, {"src/auth.py": "def auth():\n    return 'own'\n"})
        git(self.tree, "commit", "-qam", "WP01: own")

    def careless(self, more: Sequence[tuple[str, ...]] = ()) -> bool:
        """Run plain git in the tree; whether the program ran."""
        for arguments in (*CARELESS, *more):
            git(self.tree, *arguments, check=False)
        return self.marker.exists()


class Planted(NamedTuple):
    name: str
    plant: Callable[[Room], None]
    more: tuple[tuple[str, ...], ...] = ()  # what else a careless program would run


def _fsmonitor(room: Room) -> None:
    room.config("core.fsmonitor", str(room.program))


def _hooks_path(room: Room) -> None:
    room.hook(
        room.tree / "tools/hooks",
        "pre-commit",
        "post-index-change",
        "post-checkout",
        "reference-transaction",
    )
    room.config("core.hooksPath", str(room.tree / "tools/hooks"))


def _hooks(room: Room) -> None:
    room.hook(
        room.git_dir / "hooks",
        "pre-commit",
        "post-commit",
        "post-index-change",
        "reference-transaction",
    )


def _clean_filter(room: Room) -> None:
    room.attributes("* filter=planted")
    room.config("filter.planted.clean", str(room.program))


def _smudge_filter(room: Room) -> None:
    room.attributes("* filter=planted")
    room.config("filter.planted.smudge", str(room.program))


def _diff_external(room: Room) -> None:
    room.config("diff.external", str(room.program))


def _textconv(room: Room) -> None:
    room.attributes("* diff=planted")
    room.config("diff.planted.textconv", str(room.program))


def _merge_driver(room: Room) -> None:
    room.diverge()
    room.attributes("* merge=planted")
    room.config("merge.planted.driver", f"{room.program} %O %A %B < /dev/null")


def _gpg(room: Room) -> None:
    room.config("gpg.program", str(room.program))
    room.config("commit.gpgSign", "true")
    room.config("user.signingKey", "planted")


def _include(room: Room) -> None:
    (room.git_dir / "more").write_text(f"[core]\n\tfsmonitor = {room.program}\n")
    room.config("include.path", "more")


def _ssh(room: Room) -> None:
    room.config("core.sshCommand", str(room.program))
    room.config("remote.origin.url", "ssh://nowhere.invalid/x")
    room.config("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")


def _config_worktree(room: Room) -> None:
    room.config("extensions.worktreeConfig", "true")
    (room.git_dir / "config.worktree").write_text(f"[core]\n\tfsmonitor = {room.program}\n")


def _common_dir(room: Room) -> None:
    evil = room.tree.parent / ".evil"
    shutil.copytree(room.git_dir, evil)
    (evil / "config").write_text(
        f"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = {room.program}\n"
    )
    (room.git_dir / "commondir").write_text(str(evil))


def _replaced_directory(room: Room) -> None:
    evil = room.tree.parent / ".evil"
    shutil.copytree(room.git_dir, evil)
    shutil.rmtree(room.git_dir)
    shutil.copytree(evil, room.git_dir)
    (room.git_dir / "config").write_text(
        f"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = {room.program}\n"
    )


def _git_file(room: Room) -> None:
    evil = room.tree.parent / ".evil"
    shutil.move(room.git_dir, evil)
    (evil / "config").write_text(
        f"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = {room.program}\n"
    )
    room.git_dir.write_text(f"gitdir: {evil}\n")


def _git_link(room: Room) -> None:
    evil = room.tree.parent / ".evil"
    shutil.move(room.git_dir, evil)
    (evil / "config").write_text(
        f"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = {room.program}\n"
    )
    room.git_dir.symlink_to(evil)


def _embedded_bare(room: Room) -> None:
    bare = room.tree / "vendor"
    bare.mkdir()
    git(bare, "init", "-q", "--bare", ".")
    (bare / "config").write_text(
        f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n\tfsmonitor = {room.program}\n"
    )


def _submodule(room: Room) -> None:
    other = room.outside / "other"
    other.mkdir()
    git(other, "init", "-q", "-b", "main")
    git(other, "commit", "-q", "--allow-empty", "-m", "x")
    git(
        room.tree,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        str(other),
        "vendor",
    )
    room.config("submodule.vendor.update", f"!{room.program}")


def _alternate_refs(room: Room) -> None:
    other = room.outside / "other.git"
    git(room.outside, "clone", "-q", "--bare", str(room.tree), str(other))
    git(other, "commit-tree", "-m", "new", git(other, "rev-parse", "HEAD^{tree}").strip())
    # Plain git asks for the refs of an alternate only if it is the folder of a repository.
    with (room.tree / ".git/objects/info/alternates").open("a") as alternates:
        alternates.write(f"{other}/objects\n")
    room.config("core.alternateRefsCommand", str(room.program))
    room.config("remote.origin.url", str(other))
    room.config("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")


def _remote_helper(room: Room) -> None:
    room.config("remote.origin.url", f"ext::{room.program}")
    room.config("protocol.ext.allow", "always")


_IN_VENDOR = (("-C", "vendor", "status"),)
PLANTED = (
    Planted("core.fsmonitor", _fsmonitor),
    Planted("core.hooksPath", _hooks_path),
    Planted("hooks", _hooks),
    Planted("a clean filter", _clean_filter),
    Planted(
        "a smudge filter", _smudge_filter, (("worktree", "add", "-q", "--detach", "../.elsewhere"),)
    ),
    Planted("diff.external", _diff_external),
    Planted("a textconv", _textconv),
    Planted("a merge driver", _merge_driver),
    Planted("gpg.program", _gpg),
    Planted("include.path", _include),
    Planted("core.sshCommand", _ssh),
    Planted("config.worktree", _config_worktree),
    Planted("commondir", _common_dir),
    Planted("a replaced .git directory", _replaced_directory),
    Planted("a .git file that points elsewhere", _git_file),
    Planted("a .git link", _git_link),
    Planted("an embedded bare repository", _embedded_bare, _IN_VENDOR),
    Planted("a submodule's update command", _submodule, (("submodule", "update", "--force"),)),
    Planted("core.alternateRefsCommand", _alternate_refs, (("fetch", "origin"),)),
    Planted("a remote helper", _remote_helper),
)
