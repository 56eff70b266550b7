"""A repository with many files, made in a second or two: its objects only, no files."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from phasegate.git import Identity
from phasegate.workspace.checkout.checkout_creation import CheckoutOptions
from phasegate.workspace.checkout_lifecycle import ensure_feature_branch
from phasegate.workspace.repository.objects import Signature
from phasegate.workspace.repository.repository import Repository, open_repository

SLUG = "001-large"
US = Signature(Identity("Bench", "bench@localhost"), 1_800_000_000)
TERMS = CheckoutOptions(Identity("agent", "agent@localhost"), US, ("WP01.md",))
_MEMORY = Path("/dev/shm")


@contextmanager
def large_repository(files: int, *, in_memory: bool) -> Iterator[Repository]:
    """A repository whose `main` has so many small files, 50 in a folder.

    In memory where that can be: on a disk, the time to make a file varies by a factor of seven from run to run.
    """
    with tempfile.TemporaryDirectory(
        dir=_MEMORY if in_memory and _MEMORY.is_dir() else None
    ) as room:
        root = Path(room) / "project"
        subprocess.run(["git", "init", "--quiet", "-b", "main", str(root)], check=True)
        subprocess.run(
            ["git", "fast-import", "--quiet"], cwd=root, input=_stream(files), check=True
        )
        repository = open_repository(root)
        ensure_feature_branch(repository, SLUG, "main")
        yield repository


def path_of(number: int) -> str:
    return f"package{number // 2500:02}/module{number // 50 % 50:02}/file{number % 50:02}.py"


def _stream(files: int) -> bytes:
    head = b"commit refs/heads/main\ncommitter Bench <bench@localhost> 1800000000 +0000\ndata 5\nBegin\n"
    parts = [head]
    for number in range(files):
        content = f"# file {number}\n".encode() * 12
        parts.append(
            b"M 100644 inline %s\ndata %d\n%s\n" % (path_of(number).encode(), len(content), content)
        )
    return b"".join(parts)
