"""Patterns mean what git takes them to mean."""

from __future__ import annotations

import subprocess
from itertools import product
from pathlib import Path
from random import Random

import pytest

from phasegate.core.paths.glob import compile_pattern, is_pattern, may_overlap

NAMES = ["a", "b", "ab", "a.b", "ba", "c-", "a*", "x]", ".a"]
ALL_PATHS = ["/".join(parts) for depth in (1, 2, 3) for parts in product(NAMES, repeat=depth)]
PIECES = [
    "a",
    "b",
    ".",
    "*",
    "**",
    "?",
    "[ab]",
    "[!a]",
    "/",
    "/",
    "c-",
    "[*]",
    "[]a]",
    "[!]b]",
    "[a-c]",
    "[^b]",
]


def _matches(pattern: str, path: str) -> bool:
    return compile_pattern(pattern).match(path) is not None


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/deep/a.py", False),
        ("src/**", "src/deep/a.py", True),
        ("src/**", "src", False),
        ("src/**/x.py", "src/x.py", True),
        ("src/**/x.py", "src/a/b/x.py", True),
        ("**/x.py", "x.py", True),
        ("*.py", "deep/down/a.py", True),
        ("*.py", "a.py/inside", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("a[!b]c", "a/c", False),
        ("a[+-9]c", "a/c", False),
        ("build/", "build", False),
        ("build/", "x/build/y", True),
        ("**", "anything/at/all", True),
        ("*", "anything/at/all", True),
        ("src/*", "src", False),
        ("a/b*", "a/b", True),
        ("[", "[", False),
        ("x[a/b]", "xa", False),  # git lets a range hold a slash; here it matches nothing
        ("a[z-a]", "az", False),
        ("src/*.py", "src/a.py\n", False),
        ("src/**", "src/a\nb", True),
    ],
)
def test_a_pattern_matches_as_git_says(pattern: str, path: str, expected: bool) -> None:
    assert _matches(pattern, path) is expected


def _patterns(seed: int, count: int) -> list[str]:
    random = Random(seed)
    made = ("".join(random.choices(PIECES, k=random.randint(1, 7))) for _ in range(count))
    return [
        p
        for p in made
        if is_pattern(p) and "//" not in p and not p.startswith("/") and p.strip("/")
    ]


@pytest.mark.demand("D6.a")
def test_patterns_agree_with_git_itself(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    random, compared, matched = Random(1), 0, 0
    for pattern in _patterns(seed=1, count=120):
        (tmp_path / ".git/info/exclude").write_text(f"{pattern}\n")
        paths = random.sample(ALL_PATHS, 150)
        ask = ["git", "-C", str(tmp_path), "check-ignore", "--no-index", "-z", "--stdin"]
        said = subprocess.run(
            ask, input="\0".join(paths), capture_output=True, text=True, check=False
        ).stdout
        by_git = set(said.split("\0")) - {""}
        assert {path for path in paths if _matches(pattern, path)} == by_git, pattern
        compared, matched = compared + len(paths), matched + len(by_git)
    assert compared > 10_000
    assert matched > 1_000  # else the comparison says little


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("src/a.py", "src/a.py", True),
        ("src/a.py", "src/b.py", False),
        ("src/a.py", "src", True),
        ("src/a", "src/ab", False),
        ("src/**", "src/deep/a.py", True),
        ("src/*.py", "src/*.md", False),
        ("src/a*", "src/*b", True),
        ("src/a*", "src/b*", False),
        ("*.py", "docs/x.md", True),  # docs/x.md may be a folder
        ("src/[ab].py", "src/c.py", True),  # ranges are not looked into
        ("lib/**", "src/**", False),
    ],
)
def test_overlap_is_told_where_it_can_be(one: str, other: str, expected: bool) -> None:
    assert may_overlap(one, other) is expected
    assert may_overlap(other, one) is expected
