"""Paths that want out (J01 to J03): refused by name, and out of reach by race."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from phasegate.errors import ConfigError
from phasegate.files import safe_open
from phasegate.interfaces.cli.main import run_command
from phasegate.storage import artifacts
from phasegate.storage.artifacts import list_artifacts, read_artifact, write_artifact

SLUG = "001-user-login"
PATHS = [
    "../x",
    "/x",
    "a/../../x",
    "a\0b",
    "C:\\x",
    "C:x",
    "a\\..\\..\\x",
    "n" * 300,
    "/".join(["deep"] * 1000),
    "",
    ".",
    "..",
    "a//b",
    "a/./b",
    "a/",
    "~/x",
    ".git/config",
    "a/.GIT/hooks/post-commit",
    "a/.git./x",
    "git~1/x",
    "a\nb",
    "a\x1b[2Jb",
    "a\u202eb",
    "con",
    "a/NUL.txt",
    "trailing. ",
    "trailing.",
    "\udc80",
    "WP01/HEAD",
    "head",
]
SLUGS = [
    "..",
    "",
    ".",
    ".git",
    "con",
    "a/b",
    "a\nb",
    "a\n",
    "../x",
    "-rf",
    "a b",
    "aux.md",
    "a\\b",
    "x" * 101,
    "\udc80",
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    return root


def everything(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.fixture
def nothing_is_written(tmp_path: Path, root: Path) -> Iterator[None]:
    before = everything(tmp_path)
    yield
    assert everything(tmp_path) == before


@pytest.mark.demand("D14.c")
@pytest.mark.parametrize("path", PATHS, ids=ascii)
@pytest.mark.usefixtures("nothing_is_written")
def test_a_path_that_is_not_plainly_inside_is_refused(root: Path, path: str) -> None:
    with pytest.raises(ConfigError, match="artifact path"):
        write_artifact(root, SLUG, path, b"x")
    with pytest.raises(ConfigError, match="artifact path"):
        read_artifact(root, SLUG, path)


@pytest.mark.demand("D14.c")
@pytest.mark.parametrize("slug", SLUGS, ids=ascii)
@pytest.mark.usefixtures("nothing_is_written")
def test_a_slug_that_is_no_plain_name_is_refused(root: Path, slug: str) -> None:
    for use in (
        lambda: write_artifact(root, slug, "x", b"x"),
        lambda: read_artifact(root, slug, "x"),
        lambda: list_artifacts(root, slug),
    ):
        with pytest.raises(ConfigError, match="feature slug"):
            use()


def test_the_same_paths_lead_out_of_a_plain_writer(tmp_path: Path) -> None:
    """The control: joined and opened without a look, these write outside."""
    feature = tmp_path / "kitty-specs" / SLUG
    feature.mkdir(parents=True)
    escaped = []
    for path in ("../x1", "a/../../x2", str(tmp_path / "x3")):
        (feature / "a").mkdir(exist_ok=True)
        target = Path(os.path.normpath(feature / path))
        target.write_bytes(b"x")
        escaped.append(not target.is_relative_to(feature))
    assert escaped == [True] * 3


@pytest.mark.demand("D14.c")
@pytest.mark.parametrize(
    "path", ["spec.md", "WP01/test-report.txt", "a/b/c/d.bin", "ünï/ço dé.md", ".hidden", "n" * 255]
)
def test_a_plain_path_is_written_and_read_back(root: Path, path: str) -> None:
    for content in (b"", b"Tests: 42 passed, 0 failed", bytes(range(256))):
        write_artifact(root, SLUG, path, content)
        assert (root / "kitty-specs" / SLUG / path).read_bytes() == content
        assert read_artifact(root, SLUG, path) == content
    assert [found.path for found in list_artifacts(root, SLUG)] == [path]


@pytest.mark.parametrize("place", ["", f"/{SLUG}", f"/{SLUG}/a", f"/{SLUG}/a/x"])
def test_a_link_anywhere_in_the_path_is_refused(root: Path, tmp_path: Path, place: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("secret")
    link = root / f"kitty-specs{place}"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside / "x" if place.endswith("x") else outside)
    (outside / SLUG / "a").mkdir(parents=True)
    (outside / SLUG / "a" / "x").write_text("secret")
    (outside / "a").mkdir()
    (outside / "a" / "x").write_text("secret")
    before = {path: path.read_bytes() for path in everything(outside) if path.is_file()}
    assert (root / "kitty-specs" / SLUG / "a" / "x").read_text() == "secret", (
        "control: a plain reader follows the link"
    )
    with pytest.raises(ConfigError, match="link"):
        write_artifact(root, SLUG, "a/x", b"overwritten")
    with pytest.raises(ConfigError, match="link"):
        read_artifact(root, SLUG, "a/x")
    assert before == {path: path.read_bytes() for path in everything(outside) if path.is_file()}


def test_a_pipe_or_folder_in_place_of_the_file_is_refused_without_waiting(root: Path) -> None:
    write_artifact(root, SLUG, "a/x", b"1")
    feature = root / "kitty-specs" / SLUG
    os.mkfifo(feature / "pipe")
    for path in ("pipe", "a"):
        with pytest.raises(ConfigError):
            read_artifact(root, SLUG, path)
        with pytest.raises(ConfigError):
            write_artifact(root, SLUG, path, b"x")
    with pytest.raises(ConfigError):
        write_artifact(root, SLUG, "a/x/below-a-file", b"x")
    assert [found.path for found in list_artifacts(root, SLUG)] == ["a/x"]


def test_a_hard_link_is_replaced_and_not_written_through(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("kept")
    feature = root / "kitty-specs" / SLUG
    feature.mkdir(parents=True)
    os.link(outside, feature / "x")
    write_artifact(root, SLUG, "x", b"new")
    assert (outside.read_text(), (feature / "x").read_text()) == ("kept", "new")


def test_a_list_names_no_link_and_follows_none(root: Path, tmp_path: Path) -> None:
    write_artifact(root, SLUG, "a/x", b"1")
    feature = root / "kitty-specs" / SLUG
    (feature / "link").symlink_to(tmp_path)
    (feature / "file-link").symlink_to(feature / "a" / "x")
    assert [found.path for found in list_artifacts(root, SLUG)] == ["a/x"]
    assert list_artifacts(root, "002-none") == []


# --- J02 ------------------------------------------------------------------------------------------------------------


SWAPPER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
one, other = (os.fsencode(path) for path in sys.argv[1:])
print("swapping", flush=True)
while True:  # until killed: renameat2 with RENAME_EXCHANGE swaps the two in one step
    if libc.renameat2(-100, one, -100, other, 2):
        sys.exit(os.strerror(ctypes.get_errno()))
"""


@contextmanager
def swapping(feature: Path, outside: Path) -> Iterator[None]:
    """`a` is a folder, then a link to the outside, then the folder again, and so on, without a pause."""
    (feature / "a").mkdir(parents=True)
    (feature / "b").symlink_to(outside)
    command = [sys.executable, "-c", SWAPPER, str(feature / "a"), str(feature / "b")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as swapper:
        try:
            assert swapper.stdout is not None
            assert swapper.stdout.readline() == b"swapping\n"
            yield
            assert swapper.poll() is None, "the attacker was there to the end"
        finally:
            swapper.kill()


def a_careful_but_naive_writer_escapes(root: Path, tmp_path: Path) -> bool:
    """The control: look where the path leads, then write."""
    feature, outside = root / "kitty-specs" / "control", tmp_path / "outside-control"
    outside.mkdir()
    with swapping(feature, outside):
        for number in range(50_000):
            target = feature / "a" / str(number % 10)
            with suppress(OSError):
                if target.resolve().is_relative_to(feature):
                    target.write_bytes(b"x")
            if any(outside.iterdir()):
                return True
    return False


def escapes(root: Path, tmp_path: Path, times: int) -> int:
    """How many of our writes landed outside, while the legitimate ones were written."""
    feature, outside = root / "kitty-specs" / SLUG, tmp_path / "outside"
    outside.mkdir()
    refused = written = 0
    with swapping(feature, outside):
        # On a busy machine the attacker may not be scheduled for many writes in a row
        while refused + written < times or (
            not (refused and written) and refused + written < 50_000
        ):
            try:
                write_artifact(root, SLUG, f"a/{refused + written}", b"x")
            except ConfigError:
                refused += 1
            else:
                written += 1
    assert min(refused, written) > 0, "both sides of the race were seen"
    inside = [
        path
        for name in ("a", "b")
        for path in (feature / name).iterdir()
        if not (feature / name).is_symlink()
    ]
    assert len(inside) == written, "the legitimate writes are there, and nothing else"
    return len(list(outside.iterdir()))


@pytest.fixture(params=["kernel", "part by part"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of opening: by the kernel where it can, part by part elsewhere."""
    if request.param == "part by part":
        monkeypatch.setattr(artifacts, "open_beneath", safe_open.open_part_by_part)
        monkeypatch.setattr(safe_open, "open_beneath", safe_open.open_part_by_part)
    elif sys.platform != "linux":
        pytest.skip("openat2 is a call of Linux")
    return str(request.param)


@pytest.mark.demand("D14.c")
@pytest.mark.usefixtures("way")
@pytest.mark.skipif(sys.platform != "linux", reason="the attacker swaps with a call of Linux")
def test_a_folder_swapped_for_a_link_during_the_write_leads_nowhere(
    root: Path, tmp_path: Path
) -> None:
    assert a_careful_but_naive_writer_escapes(root, tmp_path)
    assert escapes(root, tmp_path, 300) == 0


@pytest.mark.long
@pytest.mark.demand("D14.c")
@pytest.mark.usefixtures("way")
@pytest.mark.skipif(sys.platform != "linux", reason="the attacker swaps with a call of Linux")
def test_ten_thousand_races_are_lost_by_the_attacker(root: Path, tmp_path: Path) -> None:
    assert a_careful_but_naive_writer_escapes(root, tmp_path)
    assert escapes(root, tmp_path, 10_000) == 0


def test_a_kernel_that_forbids_the_call_is_no_hole(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> int:
        raise PermissionError(1, "forbidden by a sandbox")

    monkeypatch.setattr(safe_open, "open_with_openat2", forbidden)
    write_artifact(root, SLUG, "a/x", b"1")
    assert read_artifact(root, SLUG, "a/x") == b"1"
    (root / "kitty-specs" / SLUG / "b").symlink_to(root)
    with pytest.raises(ConfigError, match="link"):
        write_artifact(root, SLUG, "b/x", b"1")


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.mark.demand("D14.c")
def test_the_commands_of_the_specification_work(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    below = root / "src"
    below.mkdir()
    monkeypatch.chdir(below)
    source = tmp_path / "report.bin"
    source.write_bytes(b"\xff\x00\n")
    where = ["--feature-slug", SLUG, "--relative-path"]
    report = [
        "artifact",
        "write",
        *where,
        "WP01/test-report.txt",
        "--content",
        "Tests: 42 passed, 0 failed",
    ]
    assert run_command(report) == 2, "there is no such feature yet"
    (root / "kitty-specs" / SLUG).mkdir(parents=True)
    assert run_command(report) == 0
    assert run_command(["artifact", "write", *where, "WP01/report.bin", "--file", str(source)]) == 0
    capsysbinary.readouterr()
    assert run_command(["artifact", "read", *where, "WP01/test-report.txt"]) == 0
    assert capsysbinary.readouterr().out == b"Tests: 42 passed, 0 failed"
    assert run_command(["artifact", "read", *where, "WP01/report.bin"]) == 0
    assert capsysbinary.readouterr().out == b"\xff\x00\n"
    assert run_command(["artifact", "read", *where, "WP01/report.bin", "--json"]) == 0
    assert json.loads(capsysbinary.readouterr().out)["encoding"] == "base64"
    assert run_command(["artifact", "list", "--json"]) == 0
    listed = json.loads(capsysbinary.readouterr().out)["artifacts"]
    assert [(one["path"], one["branch"]) for one in listed] == [
        ("WP01/report.bin", "record"),
        ("WP01/test-report.txt", "record"),
    ]
    assert not [*root.rglob("report.bin")], "nothing is left untracked in the person's checkout"
    assert run_command(["artifact", "write", *where, "../x", "--content", "x"]) == 2
    assert run_command(["artifact", "write", *where, "x"]) == 2
    assert run_command(["artifact", "read", *where, "missing"]) == 2
    assert b"phasegate artifact list" in capsysbinary.readouterr().err
