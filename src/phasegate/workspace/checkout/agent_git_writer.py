"""Write the git directory of an agent's checkout, and make it harmless after the run.

Phasegate's own git never uses this directory, but the user's git does when it runs inside the
checkout. Settings, hooks or a replaced directory can name programs that a plain `git status`, or a
shell prompt, would then run outside the sandbox.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from phasegate.files.file_times import are_file_times_reliable
from phasegate.git import Identity, git
from phasegate.workspace.checkout.agent_git_reader import fingerprint_git_files
from phasegate.workspace.checkout.checkout import Checkout, checkout_descriptor
from phasegate.workspace.checkout.removal import open_trash_folder, place_file
from phasegate.workspace.checkout.visible_objects import (
    add_visible_objects,
    get_visible_objects_folder,
)
from phasegate.workspace.repository.repository import Repository, config_text, write_git_directory

ALTERNATES_PATH = ".git/objects/info/alternates"
_CONFIG_PATH = ".git/config"
_DANGEROUS_PATHS = (
    ".git",
    _CONFIG_PATH,
    *(f".git/{name}" for name in ("config.worktree", "commondir", "hooks", "modules")),
)


class AgentGitSpec(NamedTuple):
    """The content of an agent's git directory."""

    branch: str
    start: str
    agent: Identity
    # Refs that the agent may see
    refs: Mapping[str, str]
    # Paths that the agent's own `git add -A` should skip
    excluded: tuple[str, ...]


def write_agent_git_dir(
    repository: Repository, folder: Path, index: Path, spec: AgentGitSpec
) -> int:
    """Write the git directory of a checkout.

    Return the time of the file system after all files were written, or 0 if file times are not
    reliable; contents are compared then. The directory reads a copy of the user's objects through
    `alternates`, with what its refs reach, and shares nothing else: no configuration or remotes.
    """
    git_dir = folder / ".git"
    git_dir.mkdir()
    write_git_directory(git_dir, repository.hash_name, _agent_config_lines(spec.agent))
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
        (git_dir / name).mkdir()

    (folder / ALTERNATES_PATH).write_bytes(alternates_content(repository))
    refs = {**_drop_unreached_tags(repository, spec), f"refs/heads/{spec.branch}": spec.start}
    add_visible_objects(repository, refs.values())
    (git_dir / "packed-refs").write_bytes(
        b"".join(os.fsencode(f"{refs[name]} {name}\n") for name in sorted(refs))
    )
    (git_dir / "HEAD").write_text(f"ref: refs/heads/{spec.branch}\n")
    (git_dir / "info/exclude").write_text("".join(f"{line}\n" for line in spec.excluded))
    if (repository.common_dir / "shallow").is_file():
        shutil.copyfile(repository.common_dir / "shallow", git_dir / "shallow")

    shutil.copyfile(index, git_dir / "index")
    if are_file_times_reliable(git_dir):
        return (git_dir / "index").stat().st_mtime_ns

    return 0


def _drop_unreached_tags(repository: Repository, spec: AgentGitSpec) -> dict[str, str]:
    """Return the refs without the tags of branches that do not concern the job."""
    tags = {name for name in spec.refs if name.startswith("refs/tags/")}
    if not tags:
        return {**spec.refs}

    said = git(
        repository.refs_place,
        "for-each-ref",
        f"--merged={spec.start}",
        "--format=%(refname)",
        "refs/tags",
    )
    reached = {*os.fsdecode(said.stdout).split("\n")}
    return {name: one for name, one in spec.refs.items() if name not in tags or name in reached}


def alternates_content(repository: Repository) -> bytes:
    """Return the bytes of the file that lets a checkout read its objects."""
    return b"%s\n" % os.fsencode(get_visible_objects_folder(repository))


def agent_config_text(repository: Repository, agent: Identity) -> str:
    """Return the text of the agent's git `config`."""
    return config_text(repository.hash_name, _agent_config_lines(agent))


def _agent_config_lines(agent: Identity) -> str:
    """Return the config lines after `[core]`: its last two settings, then `[user]` and `[gc]`.

    The user is the agent, and git never starts a garbage collection by itself.
    """
    name, email = (_quote_config_value(part) for part in agent)
    return (
        f"\tbare = false\n\tlogAllRefUpdates = true\n[user]\n\tname = {name}\n\temail ="
        f" {email}\n[gc]\n\tauto = 0\n"
    )


def _quote_config_value(text: str) -> str:
    plain = "".join(character for character in text if character.isprintable())
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def remove_dangerous_git_files(checkout: Checkout, agent: Identity) -> tuple[str, ...]:
    """Remove changed files of the agent's git that could make git run a program.

    Return the paths of these files. The agent's commits are kept.
    """
    ours = checkout.record.git_files
    with checkout_descriptor(checkout.record) as root:
        now = fingerprint_git_files(root, checkout.repository.hash_name)
        changed = tuple(path for path in _DANGEROUS_PATHS if now.get(path) != ours.get(path))

        if changed:
            with open_trash_folder(checkout.folder.parent) as room:
                for path in changed:
                    room.remove_beneath(root, path)

                if _CONFIG_PATH in changed and not _restore_config(checkout, agent):
                    room.remove_beneath(root, ".git")

    return changed


def _restore_config(checkout: Checkout, agent: Identity) -> bool:
    """Write the original git configuration again; return False if that is not possible."""
    try:
        place_file(
            checkout.folder / ".git", "config", agent_config_text(checkout.repository, agent)
        )
    except OSError:
        return False

    return True
