"""The user's repository, and Phasegate's folder in its git directory."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

from phasegate.errors import ConfigError, EnvironmentUnavailable, StateConflict
from phasegate.files import git_exclude
from phasegate.files.durable_write import make_folder, sync_folders, sync_tree
from phasegate.git import GitFailed, GitPaths, Identity, find_git, git, query_git_as_user
from phasegate.sandbox.environment import filter_search_path
from phasegate.sandbox.run_program import run_program
from phasegate.workspace.repository.git_cache import LruCache, git_cached

FALLBACK_IDENTITY = Identity("Phasegate", "phasegate@localhost")
# Content is stored and written unchanged: this file overrides every `.gitattributes` of a tree.
RAW_ATTRIBUTES = "* -text !eol -ident -filter !working-tree-encoding !crlf\n"
_MAX_READ_BYTES = 512 * 1024**2
# Limit per blob; manifests, ignore rules and documents are requested repeatedly
_MAX_CACHED_BLOB_BYTES = 256 * 1024
_STALE_AFTER_S = 24 * 3600
_BLOB_CACHE: LruCache[tuple[GitPaths, str], bytes] = LruCache(32 * 1024**2)


class Repository(NamedTuple):
    """The user's repository. `common_dir` is the git directory that all its worktrees share."""

    root: Path
    git_dir: Path
    common_dir: Path
    hash_name: str

    @property
    def own_folder(self) -> Path:
        """Phasegate's folder in the git directory, where agents cannot write."""
        return self.common_dir / "phasegate"

    @property
    def objects(self) -> Path:
        return self.common_dir / "objects"

    @property
    def refs_place(self) -> GitPaths:
        """The user's own git directory, used for refs only."""
        return GitPaths(self.git_dir, self.objects)

    def place(
        self, index: Path | None = None, work_tree: Path | None = None, *, raw: bool = True
    ) -> GitPaths:
        """Return the paths of Phasegate's own git directory, which reads the user's objects.

        With `raw` set to False, line endings are converted as the user's settings require.
        """
        folder = self.own_folder / ("git" if raw else "git-as-asked")
        if not folder.is_dir():
            _create_own_git_dir(self, folder, raw)
        return GitPaths(folder, self.objects, index, work_tree)


def open_repository(folder: Path) -> Repository:
    """Open the repository that contains a folder.

    The user's git finds it, so that its rules apply, including `safe.directory`.
    """
    wanted = ("--show-toplevel", "--git-dir", "--git-common-dir", "--show-object-format")
    said = query_git_as_user(folder, "rev-parse", "--path-format=absolute", *wanted)
    lines = os.fsdecode(said.stdout).splitlines()

    if not said.ok or len(lines) != len(wanted):
        reason = said.stderr.decode(errors="replace").strip() or "its path contains a line break"
        hint = "change to a repository, or create one: git init"
        if "dubious ownership" in reason:
            reason = "it belongs to another user, so git refuses it (dubious ownership)"
            hint = f"if you trust it: git config --global --add safe.directory {folder}"

        raise ConfigError(f"{folder} is not a usable repository: {reason}", hint)

    if not all(line.isprintable() for line in lines):
        raise ConfigError(
            f"{folder!a}: the path contains unprintable characters",
            "move the repository to another path: prompts contain the path",
        )

    return Repository(Path(lines[0]), Path(lines[1]), Path(lines[2]), lines[3])


def resolve_git_dir(folder: Path) -> Path | None:
    """Return the git directory that a folder's `.git` points to, or None if it is not valid."""
    link = folder / ".git"
    if link.is_dir():
        return link

    try:
        text = link.read_text(encoding="utf-8", errors="surrogateescape").strip()
    except OSError:
        return None

    if text.startswith("gitdir: "):
        return (folder / text.removeprefix("gitdir: ")).resolve()

    return None


def read_user_identity(repository: Repository) -> Identity:
    """Return the name and address with which the user commits; a default if none is set."""
    said = query_git_as_user(repository.root, "var", "GIT_COMMITTER_IDENT")
    name, _, rest = said.stdout.decode(errors="replace").partition(" <")
    email = rest.partition(">")[0]
    if said.ok and name and email:
        return Identity(name, email)

    return FALLBACK_IDENTITY


def write_git_directory(folder: Path, hash_name: str, settings: str = "") -> None:
    """Write an empty git directory with Phasegate's settings into an existing folder."""
    for name in ("refs", "objects", "info"):
        (folder / name).mkdir()
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    (folder / "config").write_text(config_text(hash_name, settings))
    (folder / "info/attributes").write_text(RAW_ATTRIBUTES)


def config_text(hash_name: str, settings: str) -> str:
    """Return the config of a git directory.

    `settings` is appended to the `[core]` section, and may continue with other sections.
    """
    version = 0 if hash_name == "sha1" else 1
    if hash_name == "sha1":
        extension = ""
    else:
        extension = f"[extensions]\n\tobjectFormat = {hash_name}\n"

    return (
        f"[core]\n\trepositoryFormatVersion = {version}\n\tfileMode = true\n{settings}{extension}"
    )


def _create_own_git_dir(repository: Repository, folder: Path, raw: bool) -> None:
    """Create Phasegate's git directory.

    Several processes may try at the same time; the first to finish wins.
    """
    make_folder(repository.own_folder, 0o777)
    shared = (
        git(
            repository.refs_place,
            "config",
            "--get",
            "core.sharedRepository",
            accepted_exit_codes=(0, 1),
        )
        .stdout.decode()
        .strip()
    )

    settings = "\tbare = true\n" + (f"\tsharedRepository = {shared}\n" if shared.isalnum() else "")
    with temporary_folder(repository) as room:
        made = room / "git"
        made.mkdir()
        write_git_directory(made, repository.hash_name, settings)
        if not raw:
            (made / "info/attributes").unlink()

        (made / "shallow").symlink_to(repository.common_dir / "shallow")
        # A power failure must not leave an incomplete git directory that blocks a new one
        sync_tree(made)

        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise

    sync_folders(repository.own_folder, repository.own_folder)


def exclude_folder_from_git(repository: Repository, folder: Path) -> None:
    """Exclude a folder of Phasegate from the user's git, if it is inside their working tree."""
    if folder.is_relative_to(repository.root):
        git_exclude.add_git_excludes(
            repository.common_dir, [str(folder.relative_to(repository.root))]
        )


@contextmanager
def temporary_folder(repository: Repository) -> Iterator[Path]:
    """Create a temporary folder that no agent can reach, for a `with` block.

    Folders of dead processes are removed after a day.
    """
    home = repository.own_folder / "tmp"
    home.mkdir(parents=True, exist_ok=True)
    for left in home.iterdir():
        with suppress(OSError):
            if left.stat().st_mtime < time.time() - _STALE_AFTER_S:
                shutil.rmtree(left, ignore_errors=True)

    with tempfile.TemporaryDirectory(dir=home) as room:
        yield Path(room)


def read_refs(repository: Repository, *patterns: str) -> dict[str, str]:
    """Return the refs at or below the given names, with the objects that they point to."""
    said = git(
        repository.refs_place, "for-each-ref", "--format=%(objectname) %(refname)", *patterns
    )
    # A name may contain U+2028
    lines = (line.partition(" ") for line in os.fsdecode(said.stdout).split("\n") if line)
    return {name: object_id for object_id, _, name in lines}


def resolve_commit(repository: Repository, name: str) -> str | None:
    """Return the commit that a ref or an object id denotes, or None if there is none."""
    arguments = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    try:
        return git_cached(repository.refs_place, *arguments).stdout.decode().strip() or None
    except GitFailed:
        return None


def is_ancestor(repository: Repository, older: str, newer: str) -> bool:
    """Return True if one commit is an ancestor of another, or the same."""
    return (
        git(
            repository.place(),
            "merge-base",
            "--is-ancestor",
            older,
            newer,
            accepted_exit_codes=(0, 1),
        ).exit_code
        == 0
    )


def read_blobs(place: GitPaths, object_ids: Iterable[str]) -> Mapping[str, bytes]:
    """Return the contents of blobs by id. Raise an error for an object that is missing or not a
    blob.
    """
    known = {object_id: _BLOB_CACHE.get((place, object_id)) for object_id in object_ids}
    found = {object_id: content for object_id, content in known.items() if content is not None}
    lacking = [object_id for object_id in known if object_id not in found]
    if not lacking:
        return found

    asked = "".join(f"{object_id}\n" for object_id in lacking).encode()
    stream = git(place, "cat-file", "--batch", stdin=asked, max_output_bytes=_MAX_READ_BYTES).stdout
    at = 0

    for object_id in lacking:
        end = stream.index(b"\n", at)
        head = stream[at:end].decode().split()
        if len(head) != 3 or head[:2] != [object_id, "blob"]:
            raise StateConflict(
                f"object {object_id} is not a readable blob", "check the repository: git fsck"
            )

        at = end + 1 + int(head[2])
        found[object_id] = stream[end + 1 : at]
        at += 1
        if len(found[object_id]) <= _MAX_CACHED_BLOB_BYTES:
            _BLOB_CACHE.put((place, object_id), found[object_id], len(found[object_id]) + 200)

    return found


LIST_FILES_TIMEOUT_S = 120
# With these settings, git runs no configured program, and no configuration changes its output.
_GIT_SETTINGS = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.excludesFile=/dev/null",
    "core.quotePath=false",
)
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}


def list_files(root: Path) -> list[str]:
    """Return tracked files, and untracked files that are not ignored; none outside a repository."""
    settings = [part for setting in _GIT_SETTINGS for part in ("-c", setting)]
    command = [
        find_git(),
        *settings,
        "ls-files",
        "-z",
        "--deduplicate",
        "--cached",
        "--others",
        "--exclude-standard",
    ]

    environment = {"PATH": filter_search_path(os.environ.get("PATH", "")), **_ENVIRONMENT}
    # Reading a pipe in small chunks takes as long as listing the tree (measured)
    with TemporaryFile() as listed:
        done = run_program(
            command,
            cwd=root,
            env=environment,
            timeout_s=LIST_FILES_TIMEOUT_S,
            stdout_fd=listed.fileno(),
        )

        if done.timed_out:
            raise EnvironmentUnavailable(
                f"git took more than {LIST_FILES_TIMEOUT_S} s to list the files of {root}"
            )

        listed.seek(0)
        paths = listed.read() if done.ok else b""

    return paths.decode("utf-8", "surrogateescape").split("\0")[:-1]
