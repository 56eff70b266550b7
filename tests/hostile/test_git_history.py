"""An agent's git directory can hold anything; reading its history never hangs, leaks, fails or believes it."""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from phasegate.workspace.changes.changes import Observation, observe_checkout
from phasegate.workspace.checkout.agent_git_reader import copy_agent_objects
from phasegate.workspace.checkout.checkout import Checkout, checkout_descriptor
from phasegate.workspace.repository.disk_files import CheckoutLimits
from support.git_project import (
    git,
    make_checkout,
    make_repository,
    seen_in,
    show,
    subjects,
    take_over,
    write,
)

LOGIN = "src/login.py"


def _object(folder: Path, kind: str, content: bytes) -> str:
    done = subprocess.run(
        ["git", "hash-object", "-t", kind, "-w", "--stdin", "--literally"],
        cwd=folder,
        input=content,
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().strip()


def _commit_of_tree(checkout: Checkout, tree: str) -> None:
    commit = git(checkout.folder, "commit-tree", "-p", "HEAD", "-m", "WP01: odd", tree).strip()
    git(checkout.folder, "update-ref", "HEAD", commit)


def _pipe_for_an_object(checkout: Checkout) -> None:
    loose = next((checkout.folder / ".git/objects").glob("[0-9a-f][0-9a-f]/*"))
    loose.unlink()
    os.mkfifo(loose)


def _pipe_for_head(checkout: Checkout) -> None:
    (checkout.folder / ".git/HEAD").unlink()
    os.mkfifo(checkout.folder / ".git/HEAD")


def _pipe_for_a_pack(checkout: Checkout) -> None:
    os.mkfifo(checkout.folder / ".git/objects/pack" / f"pack-{'a' * 40}.pack")
    os.mkfifo(checkout.folder / ".git/objects/pack" / f"pack-{'a' * 40}.idx")


def _garbage_pack(checkout: Checkout) -> None:
    (checkout.folder / ".git/objects/pack" / f"pack-{'b' * 40}.pack").write_bytes(
        b"PACK" + os.urandom(5000)
    )


def _objects_behind_a_link(checkout: Checkout) -> None:
    objects = checkout.folder / ".git/objects"
    objects.rename(checkout.folder.parent / ".moved")
    objects.symlink_to(checkout.folder.parent / ".moved")


def _garbage_index(checkout: Checkout) -> None:
    (checkout.folder / ".git/index").write_bytes(b"DIRC\0\0\0\2" + os.urandom(3000))


def _tree_bomb(checkout: Checkout) -> None:
    """Ten levels of ten names each for the same tree below: 10 000 000 000 paths in a few objects."""
    tree = git(checkout.folder, "rev-parse", "HEAD^{tree}").strip()
    for _ in range(10):
        content = b"".join(b"40000 d%d\0%s" % (number, bytes.fromhex(tree)) for number in range(10))
        tree = _object(checkout.folder, "tree", content)
    _commit_of_tree(checkout, tree)


def _inflating_object(checkout: Checkout) -> None:
    """A megabyte that unpacks to a gigabyte, under a commit's name."""
    name = "ab" + "c" * 38
    packer = zlib.compressobj(9)
    data = packer.compress(b"commit 1073741824\0") + b"".join(
        packer.compress(bytes(1024**2)) for _ in range(300)
    )
    (checkout.folder / ".git/objects/ab").mkdir(exist_ok=True)
    (checkout.folder / ".git/objects/ab" / ("c" * 38)).write_bytes(data + packer.flush())
    (checkout.folder / ".git/HEAD").write_text(name + "\n")


def _head_outside(checkout: Checkout) -> None:
    (checkout.folder / ".git/HEAD").write_text("ref: refs/../../../../etc/passwd\n")


def _head_of_nothing(checkout: Checkout) -> None:
    (checkout.folder / ".git/HEAD").write_text("1" * 40 + "\n")


def _odd_names_in_a_tree(checkout: Checkout) -> None:
    blob = bytes.fromhex(_object(checkout.folder, "blob", b"evil\n"))
    inner = bytes.fromhex(_object(checkout.folder, "tree", b"100644 config\0" + blob))
    tree = _object(
        checkout.folder, "tree", b"40000 ..\0%s40000 .git\0%s100644 a\0%s" % (inner, inner, blob)
    )
    _commit_of_tree(checkout, tree)


ODD = (
    _pipe_for_an_object,
    _pipe_for_head,
    _pipe_for_a_pack,
    _garbage_pack,
    _objects_behind_a_link,
    _garbage_index,
    _tree_bomb,
    _inflating_object,
    _head_outside,
    _head_of_nothing,
    _odd_names_in_a_tree,
)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    checkout = make_checkout(make_repository(tmp_path / "project"))
    write(checkout.folder, {LOGIN: "done\n"})
    git(checkout.folder, "commit", "-qam", "WP01: done")
    return checkout


@pytest.mark.demand("D4.g", "D6.m")
@pytest.mark.parametrize("make", ODD, ids=lambda make: make.__name__.strip("_"))
def test_an_odd_git_directory_costs_only_its_own_history(
    checkout: Checkout, make: Callable[[Checkout], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phasegate.workspace.changes.agent_history._TIMEOUT_S", 3.0)
    make(checkout)
    seen = observe_checkout(checkout, limits=CheckoutLimits(file_bytes=20 * 1024**2))
    assert isinstance(seen, Observation)
    assert [change.path for change in seen.changes] == [LOGIN]
    done = take_over(checkout, [LOGIN])
    assert show(checkout.repository, done.tip, LOGIN) == b"done\n"
    git(checkout.repository.root, "fsck", "--strict")


@pytest.mark.demand("D6.m")
def test_replaced_objects_grafts_and_graphs_are_not_believed(checkout: Checkout) -> None:
    """The control: plain git shows the forged history."""
    real = git(checkout.folder, "rev-parse", "HEAD").strip()
    tree = git(checkout.folder, "rev-parse", "HEAD^{tree}").strip()
    forged = git(
        checkout.folder, "commit-tree", "-p", "HEAD~1", "-m", "WP01: reviewed by a person", tree
    ).strip()
    git(checkout.folder, "replace", real, forged)
    git(checkout.folder, "commit-graph", "write", "--reachable")
    assert git(checkout.folder, "log", "-1", "--format=%s").strip() == "WP01: reviewed by a person"
    assert [commit.subject for commit in seen_in(checkout).history.commits] == ["WP01: done"]
    done = take_over(checkout, [LOGIN])
    assert subjects(checkout.repository, f"main..{done.tip}") == ["WP01: done"]


@pytest.mark.demand("D6.m", "D4.e")
def test_objects_of_another_repository_are_not_reached_through_alternates(
    checkout: Checkout, tmp_path: Path
) -> None:
    """The control: plain git in the checkout can read the other repository's secret."""
    secret = make_repository(tmp_path / "secret", {"key": "canary-4711\n"})
    with (checkout.folder / ".git/objects/info/alternates").open("a") as alternates:
        alternates.write(f"{secret.objects}\n")
    stolen = git(secret.root, "rev-parse", "HEAD:key").strip()
    git(checkout.folder, "update-index", "--add", "--cacheinfo", f"100644,{stolen},src/new.py")
    git(checkout.folder, "commit", "-qm", "WP01: take it")
    assert git(checkout.folder, "show", "HEAD:src/new.py") == "canary-4711\n"
    done = take_over(checkout, [LOGIN, "src/new.py"])
    assert show(checkout.repository, done.tip, LOGIN) == b"done\n"
    everything = ["git", "cat-file", "--batch", "--batch-all-objects"]
    found = subprocess.run(
        everything, cwd=checkout.repository.root, capture_output=True, check=True
    ).stdout
    assert b"canary" not in found


def test_more_commits_than_the_limit_are_taken_over_as_one(checkout: Checkout) -> None:
    for number in range(5):
        git(checkout.folder, "commit", "-q", "--allow-empty", "-m", f"WP01: {number}")
    seen = observe_checkout(checkout, limits=CheckoutLimits(commits=3))
    assert isinstance(seen, Observation)
    assert "more than 3 commits" in seen.history.note
    assert not seen.history.is_linear


def test_a_message_cannot_forge_a_commit(checkout: Checkout) -> None:
    evil = "WP01: x\n\ndone\ncommit refs/heads/main\nfrom 0\nM 100644 inline evil\n\x00\x1b[31m"
    write(checkout.folder, {LOGIN: "two\n", "../message": evil.replace("\x00", "")})
    git(
        checkout.folder,
        "commit",
        "-qaF",
        "../message",
        "--cleanup=verbatim",
        "--author=A\u00e4 <a@b>",
    )
    before = git(checkout.repository.root, "rev-parse", "main")
    done = take_over(checkout, [LOGIN])
    assert git(checkout.repository.root, "rev-parse", "main") == before
    assert len(done.commits) == 2
    assert git(checkout.repository.root, "ls-tree", "--name-only", done.tip, "evil") == ""


def _little_that_unfolds(git_dir: Path) -> None:
    for number in range(30):
        folder = git_dir / "objects" / f"{number:02x}"
        folder.mkdir(exist_ok=True)
        (folder / ("0" * 38)).write_bytes(zlib.compress(bytes(1024**2)))


def _many_packs(git_dir: Path) -> None:
    empty = b"PACK" + struct.pack(">II", 2, 0)
    for number in range(51):
        pack = git_dir / f"objects/pack/pack-{number:040x}.pack"
        pack.write_bytes(empty + hashlib.sha1(empty).digest())


@pytest.mark.demand("D6.m")
@pytest.mark.parametrize("flood", [_little_that_unfolds, _many_packs])
def test_objects_that_would_take_for_ever_to_read_cost_the_agent_its_history(
    checkout: Checkout, flood: Callable[[Path], None]
) -> None:
    """Little on the disk can unfold to any number of bytes; what the disk shows is delivered all the same (M04)."""
    write(checkout.folder, {LOGIN: "work = True\n"})
    git(checkout.folder, "commit", "-qam", "WP01: more work")
    limits = CheckoutLimits(total_bytes=8 * 1024**2)
    before = observe_checkout(
        checkout, limits=limits._replace(depth=99)
    )  # with the same limits it would be known from then on
    assert isinstance(before, Observation)
    assert before.history.commits[-1].subject == "WP01: more work"
    flood(checkout.folder / ".git")
    seen = observe_checkout(checkout, limits=limits)
    assert isinstance(seen, Observation)
    assert "limit" in seen.history.note
    assert seen.versions == before.versions


def _pack_entry(kind: int, size: int, data: bytes, base: bytes = b"") -> bytes:
    """An object in a pack: its kind and size in groups of seven bits, the id of its base, its content."""
    head, size = [(kind << 4) | (size & 15)], size >> 4
    while size:
        head[-1] |= 0x80
        head.append(size & 0x7F)
        size >>= 7
    return bytes(head) + base + zlib.compress(data)


def _number(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + _number(value >> 7) if value > 0x7F else bytes([value])


def _bomb(copies: int) -> bytes:
    """A pack of a megabyte of zeros, and a delta that puts it together so many times."""
    content = bytes(1024**2)
    name = hashlib.sha1(b"blob %d\0%s" % (len(content), content)).digest()
    delta = _number(len(content)) + _number(len(content) * copies) + b"\xc0\x10" * copies
    entries = _pack_entry(3, len(content), content) + _pack_entry(7, len(delta), delta, name)
    pack = b"PACK" + struct.pack(">II", 2, 2) + entries
    return pack + hashlib.sha1(pack).digest()


@pytest.mark.demand("D6.m")
def test_deltas_that_unfold_to_more_than_the_limit_are_not_unfolded(
    checkout: Checkout, tmp_path: Path
) -> None:
    """A few kilobytes could take all memory of the machine (M05). The control: a plain git unfolds them."""
    pack = _bomb(40)
    assert len(pack) < 10_000
    git(tmp_path, "init", "-q", "careless")
    unfolds = ["git", "index-pack", "--stdin"]
    assert (
        subprocess.run(
            unfolds, cwd=tmp_path / "careless", input=pack, capture_output=True
        ).returncode
        == 0
    )
    (checkout.folder / f".git/objects/pack/pack-{'c' * 40}.pack").write_bytes(pack)
    for file_bytes, is_taken in ((80 * 1024**2, True), (20 * 1024**2, False)):
        with checkout_descriptor(checkout.record) as root:
            place = copy_agent_objects(
                root,
                checkout.repository,
                tmp_path / f"{file_bytes}",
                CheckoutLimits(file_bytes=file_bytes),
            )
        assert any((place.objects / "pack").glob("*.pack")) is is_taken
    seen = observe_checkout(checkout, limits=CheckoutLimits(file_bytes=20 * 1024**2))
    assert isinstance(seen, Observation)
    assert [commit.subject for commit in seen.history.commits] == ["WP01: done"]
