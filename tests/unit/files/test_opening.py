"""Files that an agent may have touched: what is opened is a plain file in its place, and nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import phasegate
from phasegate.files import open_regular_file, read_regular_file
from phasegate.files.durable_write import replace_file_at
from phasegate.files.safe_open import (
    folder_beneath,
    folder_descriptor,
    open_beneath,
    open_part_by_part,
    open_with_openat2,
)

LIMIT = 100
# Each opens files of ours in folders that no agent can write, or locks and devices.
OPENED_ELSEWHERE = {
    "agents/acp/files.py",
    "engine/tools/agent_files.py",
    "storage/chain_heads.py",
    "storage/lock.py",
    "storage/trail_log.py",
    "workspace/repository/ref_log.py",
    "workspace/repository/user_checkout.py",
    "workspace/repository/repository_locks.py",
}


@pytest.fixture
def there(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_bytes(b"secret")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "plain").write_bytes(b"plain")
    (folder / "link").symlink_to(tmp_path / "secret")
    os.link(tmp_path / "secret", folder / "second-name")
    os.mkfifo(folder / "pipe")
    (folder / "large").write_bytes(b"x" * (LIMIT + 1))
    (folder / "out").symlink_to(tmp_path)
    return folder


@pytest.mark.parametrize("name", ["link", "pipe", "large", "missing", "out", ".", "nul\0"])
def test_what_is_no_plain_file_within_the_limit_is_not_read(there: Path, name: str) -> None:
    assert read_regular_file(there / "plain", LIMIT) == b"plain"
    assert read_regular_file(there / name, LIMIT) is None
    with folder_descriptor(there) as folder:
        assert read_regular_file("plain", LIMIT, folder) == b"plain"
        assert read_regular_file(name, LIMIT, folder) is None


def test_a_second_name_is_refused_where_it_may_be_one_outside(there: Path) -> None:
    assert read_regular_file(there / "second-name", LIMIT) == b"secret", "the control"
    assert read_regular_file(there / "second-name", LIMIT, single_link=True) is None


def test_a_link_is_followed_only_where_the_caller_says_so(there: Path) -> None:
    with pytest.raises(OSError, match="symbolic links"):
        open_regular_file(there / "link")
    descriptor = open_regular_file(there / "link", follow_link=True)
    assert os.read(descriptor, LIMIT) == b"secret"
    os.close(descriptor)


@pytest.mark.parametrize("way", [open_beneath, open_with_openat2, open_part_by_part])
def test_no_part_of_a_way_beneath_a_folder_is_a_link(
    there: Path, way: Callable[[int, Sequence[str], int], int]
) -> None:
    with folder_descriptor(there) as folder:
        os.close(way(folder, ["plain"], os.O_RDONLY))
        with pytest.raises(OSError, match="out"):
            way(folder, ["out", "secret"], os.O_RDONLY)


@pytest.mark.parametrize("path", ["..", "../secret", "folder/..", "a//b", "./a", "/etc"])
def test_no_way_beneath_a_folder_leads_out_of_it(there: Path, path: str) -> None:
    with (
        folder_descriptor(there) as folder,
        pytest.raises(FileNotFoundError),
        folder_beneath(folder, path),
    ):
        pass


def test_a_way_that_is_too_long_for_one_call_is_gone_part_by_part(tmp_path: Path) -> None:
    parts = ["d" * 200] * 30
    current = os.open(tmp_path, os.O_RDONLY)
    for part in parts:
        os.mkdir(part, dir_fd=current)
        below = os.open(part, os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = below
    os.close(current)
    with folder_descriptor(tmp_path) as root, folder_beneath(root, "/".join(parts)) as deepest:
        os.mkdir("made", dir_fd=deepest)
        assert os.stat("made", dir_fd=deepest)


def test_what_is_replaced_is_the_link_and_not_what_it_leads_to(there: Path, tmp_path: Path) -> None:
    with folder_descriptor(there) as folder:
        replace_file_at(folder, "link", b"new", 0o600)
    assert (there / "link").read_bytes() == b"new"
    assert (tmp_path / "secret").read_bytes() == b"secret"


def test_nobody_else_opens_files_by_flags() -> None:
    source = Path(phasegate.__file__).parent
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"\bos\.open\((?!os\.devnull)", path.read_text())
        and path.parent.name not in ("files", "sandbox")
    }
    assert found - OPENED_ELSEWHERE == set()
    assert OPENED_ELSEWHERE - found == set(), "the list is no longer than it must be"
