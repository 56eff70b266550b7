"""Read the branches of a user's remote, and move them by compare-and-swap."""

from __future__ import annotations

import base64
import os
import re
from enum import StrEnum
from typing import NamedTuple

from phasegate.errors import EnvironmentUnavailable, TemporarilyUnavailable
from phasegate.git import query_git_as_user, read_login, run_git_over_network
from phasegate.sandbox.run_program import ProgramResult
from phasegate.workspace.repository.ref_log import RefMove
from phasegate.workspace.repository.refs import BRANCH_PREFIX
from phasegate.workspace.repository.repository import Repository, resolve_commit

_PERMANENT_ERRORS = (
    *(
        "Authentication failed",
        "could not read Username",
        "Permission denied",
        "not found",
        "error: 403",
    ),
    "error: 401",
)
_LOGIN = re.compile(r"(?<=://)[^/\s]+@")


class Remote(NamedTuple):
    """The URL of a remote, and HTTP credentials.

    The token is passed only in the environment of a single git process.
    """

    url: str
    user: str = ""
    token: str = ""

    @property
    def shown_url(self) -> str:
        """Return the URL without a user name and password, for messages."""
        return hide_login(self.url)

    @property
    def environment(self) -> dict[str, str]:
        if not self.token or not self.url.startswith(("https://", "http://")):
            return {}

        basic = base64.b64encode(f"{self.user}:{self.token}".encode()).decode()
        header = f"Authorization: Basic {basic}"
        return {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "http.extraHeader",
            "GIT_CONFIG_VALUE_0": header,
        }


def hide_login(text: str) -> str:
    """Replace user names and passwords in the URLs of a text."""
    return _LOGIN.sub("***@", text)


class PushResult(StrEnum):
    DONE = "done"
    # The branch does not have the expected value
    MOVED = "moved"
    REFUSED = "refused"


def read_remote_url(repository: Repository, name: str) -> str:
    """Return the URL of a remote after the user's URL rewriting; empty if there is none."""
    said = query_git_as_user(repository.root, "remote", "get-url", "--push", name)
    if said.ok:
        return os.fsdecode(said.stdout).strip()
    return ""


def with_user_credential(remote: Remote) -> Remote:
    """Return a remote with the login that the user's credential helper has for an HTTP address."""
    if remote.token or not remote.url.startswith(("https://", "http://")):
        return remote

    login = read_login(remote.url)
    return remote._replace(user=login.user, token=login.password)


def list_remote_refs(repository: Repository, remote: Remote, *refs: str) -> dict[str, str]:
    """Return the objects of refs on the remote; missing refs are omitted."""
    said = _run_checked(repository, remote, "ls-remote", "--", remote.url, *refs)
    lines = (line.partition("\t") for line in said.stdout.decode(errors="replace").splitlines())
    return {name: commit for commit, _, name in lines if name in refs}


def get_remote_branch(repository: Repository, remote: Remote, branch: str) -> str:
    """Return the commit of a branch on the remote; empty if it does not exist."""
    return list_remote_refs(repository, remote, BRANCH_PREFIX + branch).get(
        BRANCH_PREFIX + branch, ""
    )


def fetch_refs(repository: Repository, remote: Remote, *refs: str) -> dict[str, str]:
    """Fetch refs of the remote without creating local refs; return their commits."""
    there = list_remote_refs(repository, remote, *refs)

    if missing := [
        ref for ref, commit in there.items() if resolve_commit(repository, commit) is None
    ]:
        options = ("--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--quiet")
        _run_checked(repository, remote, "fetch", *options, "--", remote.url, *missing)

    return there


def fetch_branch(repository: Repository, remote: Remote, branch: str) -> str:
    """Fetch a branch of the remote without creating a local ref.

    Return its commit; empty if the branch does not exist.
    """
    return fetch_refs(repository, remote, BRANCH_PREFIX + branch).get(BRANCH_PREFIX + branch, "")


def push_branch(
    repository: Repository, remote: Remote, branch: str, old: str, new: str | None
) -> tuple[PushResult, str]:
    """Move a branch on the remote from `old` to `new`, if it is still at `old`.

    An empty `old` means that the branch must not exist; None as `new` deletes it.
    """
    return push_refs(repository, remote, RefMove(BRANCH_PREFIX + branch, old, new))


def push_refs(repository: Repository, remote: Remote, *moves: RefMove) -> tuple[PushResult, str]:
    """Move refs on the remote, all or none. Safe to repeat after a lost response."""
    leases = [f"--force-with-lease={move.name}:{move.old or ''}" for move in moves]
    atomic = ["--atomic"] if len(moves) > 1 else []
    names = [f"{move.new or ''}:{move.name}" for move in moves]
    said = _run(
        repository,
        remote,
        "push",
        "--porcelain",
        "--no-verify",
        *atomic,
        *leases,
        "--",
        remote.url,
        *names,
    )

    if said.exit_code == 0:
        return PushResult.DONE, ""

    output = said.stdout.decode(errors="replace") + said.stderr.decode(errors="replace")
    rejected = " ".join(line for line in output.splitlines() if line.startswith(("!", "remote:")))[
        :500
    ]
    if not rejected:
        raise _remote_error(remote, output)

    there = list_remote_refs(repository, remote, *(move.name for move in moves))
    if all(there.get(move.name) == move.new for move in moves):
        return PushResult.DONE, ""

    has_moved = any(there.get(move.name, "") != (move.old or "") for move in moves)
    return PushResult.MOVED if has_moved else PushResult.REFUSED, rejected


def find_push_problem(repository: Repository, remote: Remote) -> str:
    """Return why the remote would reject a push; empty if it would accept one.

    Nothing is changed on the remote.
    """
    head = resolve_commit(repository, "HEAD")
    said = _run(
        repository,
        remote,
        "push",
        "--dry-run",
        "--porcelain",
        "--",
        remote.url,
        f"{head}:{BRANCH_PREFIX}phasegate-doctor",
    )

    if said.exit_code == 0:
        return ""

    return hide_login(" ".join(said.stderr.decode(errors="replace").split()))[:300]


def _run_checked(repository: Repository, remote: Remote, *arguments: str) -> ProgramResult:
    said = _run(repository, remote, *arguments)
    if said.exit_code != 0:
        raise _remote_error(remote, said.stderr.decode(errors="replace"))
    return said


def _run(repository: Repository, remote: Remote, *arguments: str) -> ProgramResult:
    return run_git_over_network(repository.place(), *arguments, extra_env=remote.environment)


def _remote_error(remote: Remote, output: str) -> EnvironmentUnavailable:
    line = " ".join(output.replace(remote.token or "\0", "***").split())[:300]
    message = hide_login(f"git cannot reach {remote.url}: {line}")
    if any(word in output for word in _PERMANENT_ERRORS):
        return EnvironmentUnavailable(message, "check the address, the token and its permissions")
    return TemporarilyUnavailable(message)
