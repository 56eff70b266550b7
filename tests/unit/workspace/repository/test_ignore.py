"""Ignore rules mean what they mean to git."""

from __future__ import annotations

import string
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phasegate.workspace.repository.ignore import IgnoreRules
from support.git_project import git, write
from support.growth import assert_grows_no_faster_than_its_input


def _ignored_by_us(rules: IgnoreRules, path: str) -> bool:
    """A file is ignored if it is, or if a folder above it is: that one is not looked into."""
    parts = path.split("/")
    folders = ["/".join(parts[:count]) for count in range(1, len(parts))]
    return any(rules.is_ignored(folder, True) for folder in folders) or rules.is_ignored(
        path, False
    )


def _ignored_by_git(root: Path, paths: list[str]) -> set[str]:
    asked = "\0".join(paths).encode()
    arguments = ["git", "check-ignore", "--no-index", "-z", "--stdin"]
    done = subprocess.run(arguments, cwd=root, input=asked, capture_output=True)
    return {path for path in done.stdout.decode().split("\0") if path}


@pytest.mark.demand("D6.j")
@pytest.mark.parametrize(
    "text",
    [
        "*.log\n!keep.log\n",
        "/build\nsrc/*.o\n",
        "build/\n",
        "**/cache/\n",
        "a/**/b\n",
        "a/**\n!a/keep\n",
        "a/*\n!a/b/\n",
        "# a comment\n\\#literal\n\\!bang\n",
        "trailing \nescaped\\ \n",
        "\\*.txt\n[ab].txt\n[!a].md\n?x\n",
        "foo/\n!foo/bar\n",
        "*.log\r\nbuild/\r\n",
        "/*\n!/src\n",
        "a\n!/a\n",
        "/\n//\n!\n",
        "doc/frotz/\nfrotz\n",
        "*\n!*/\n!*.py\n",
        "[broken\n*.ok\n",
    ],
)
def test_a_rule_means_what_git_says(tmp_path: Path, text: str) -> None:
    names = [
        "a",
        "b",
        "a.txt",
        "b.txt",
        "c.md",
        "a.md",
        "x.log",
        "keep.log",
        "#literal",
        "!bang",
        "trailing",
        "escaped ",
    ]
    names += [
        "*.txt",
        "foo",
        "bar",
        "build",
        "cache",
        "keep",
        "frotz",
        "src",
        "m.py",
        "ax",
        "o.o",
        "x.ok",
        "[broken",
    ]
    paths = [
        *names,
        *(f"{one}/{two}" for one in ("a", "foo", "src", "build", "doc", "x/y") for two in names),
    ]
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_bytes(text.encode())
    rules = IgnoreRules({"": text.encode()})
    assert {path for path in paths if _ignored_by_us(rules, path)} == _ignored_by_git(
        tmp_path, paths
    )


@pytest.mark.demand("D6.j")
def test_the_nearest_file_decides(tmp_path: Path) -> None:
    files = {
        ".gitignore": "*.log\n/only-root\n",
        "src/.gitignore": "!*.log\n/made\n",
        "src/deep/.gitignore": "x.log\n",
    }
    paths = [
        "a.log",
        "src/a.log",
        "src/deep/a.log",
        "src/deep/x.log",
        "made",
        "src/made",
        "src/deep/made",
        "src/only-root",
    ]
    git(tmp_path, "init", "-q")
    write(tmp_path, files)
    rules = IgnoreRules({path.rpartition("/")[0]: text.encode() for path, text in files.items()})
    assert {path for path in paths if _ignored_by_us(rules, path)} == _ignored_by_git(
        tmp_path, paths
    )


_PART = st.text("ab*?.", min_size=1, max_size=4).filter(lambda part: part not in (".", "..", "**"))
_LINE = st.builds(
    lambda bang, lead, parts, tail: bang + lead + "/".join(parts) + tail,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "/", "**/"]),
    st.lists(_PART, min_size=1, max_size=3),
    st.sampled_from(["", "/", "/**"]),
)
_NAME = st.text("ab.", min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))
_PATHS = st.lists(
    st.lists(_NAME, min_size=1, max_size=4).map("/".join), min_size=1, max_size=30, unique=True
)


@pytest.mark.demand("D6.j")
@settings(max_examples=60)
@given(st.lists(_LINE, min_size=1, max_size=5), _PATHS)
def test_random_rules_mean_what_git_says(lines: list[str], paths: list[str]) -> None:
    """But for one known case, which errs towards "not ignored": see the module."""
    with tempfile.TemporaryDirectory() as room:
        root = Path(room)
        git(root, "init", "-q")
        (root / ".gitignore").write_text("\n".join(lines) + "\n")
        theirs = _ignored_by_git(root, paths)
    ours = {
        path for path in paths if _ignored_by_us(IgnoreRules({"": "\n".join(lines).encode()}), path)
    }
    floating = any(
        line.lstrip("!/").startswith("**/") and "/" in line.lstrip("!/")[3:].rstrip("/*")
        for line in lines
    )
    assert ours == theirs or floating


@pytest.mark.demand("D6.k")
def test_litter_is_ignored_unless_a_rule_says_otherwise() -> None:
    rules = IgnoreRules({"": b"!/coverage\n"}, ("coverage/", "*.pyc"))
    assert rules.is_ignored("src/coverage", True)
    assert not rules.is_ignored("coverage", True)
    assert not rules.is_ignored("src/coverage", False)
    assert rules.is_ignored("a.pyc", False)


def test_no_name_can_stall_a_rule() -> None:
    """64 times the name costs about 64 times the time, not 64 to the power of the stars."""
    rules = IgnoreRules({"": b"*a*a*a*a*a*a*a*x\n/*b*b*b*b*b/*b*b*b*x\n"})

    def long_names(size: int) -> list[str]:
        return ["a" * size, "b" * size + "/" + "b" * size, string.ascii_letters * (size // 52)]

    def look(names: list[str]) -> None:
        for name in names:
            rules.is_ignored(name, False)

    assert_grows_no_faster_than_its_input(look, long_names, 512, 32_768)
