"""Each limit of tools/readability.py refuses what is over it, and passes what is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "readability.py"
LIMITS = {
    "max_nodes": 1000,
    "max_nodes_per_line": 20.0,
    "max_module_nodes_per_line": 20.0,
    "max_conditional_expressions_per_1000_lines": 500.0,
    "nested_conditional_expressions": 0,
    "positional_records": 0,
    "noun_docstrings": 0,
    "given_up_words": 0,
}
RECORD = "from typing import NamedTuple\n\n\nclass R(NamedTuple):\n" + "".join(
    f"    field_{number}: int\n" for number in range(5)
)


def check(
    root: Path, source: str, document: str = "", **limits: float
) -> subprocess.CompletedProcess[str]:
    (root / "src/product").mkdir(parents=True)
    (root / "src/product/module.py").write_text(source)
    (root / "README.md").write_text(document)
    lines = (f"{name} = {value}\n" for name, value in {**LIMITS, **limits}.items())
    (root / "pyproject.toml").write_text("[tool.readability]\n" + "".join(lines))
    command = [sys.executable, str(TOOL), "--root", str(root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_plain_code_passes(tmp_path: Path) -> None:
    done = check(tmp_path, 'def f(x):\n    """Return x."""\n    return x\n', "Plain text.\n")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("source", "limits", "complaint"),
    [
        ("x = 1\n", {"max_nodes": 1}, "AST nodes, 1 are allowed"),
        ("x = 1\n", {"max_nodes_per_line": 1.0}, "AST nodes a line, 1.0 are allowed"),
        ("x = 1\n" * 20, {"max_module_nodes_per_line": 1.0}, "module.py has"),
        (
            "x = 1 if y else 2\n",
            {"max_conditional_expressions_per_1000_lines": 10.0},
            "conditional expressions in 1000 lines",
        ),
        (
            "x = 1 if y else 2 if z else 3\n",
            {"max_conditional_expressions_per_1000_lines": 9e9},
            "nested",
        ),
        (f"{RECORD}\n\nr = R(1, 2, 3, 4, 5)\n", {}, "R is built by position"),
        ('def f():\n    """The value."""\n', {}, "noun_docstrings: 1"),
        ("told = 1\n", {}, "given_up_words: 1"),
        ("was_told_so = 1\n", {}, "given_up_words: 1"),
    ],
)
def test_what_is_over_a_limit_is_refused(
    tmp_path: Path, source: str, limits: dict[str, float], complaint: str
) -> None:
    done = check(tmp_path, source, **limits)
    assert done.returncode == 1
    assert complaint in done.stderr


def test_a_record_with_keywords_a_verb_and_a_longer_word_pass(tmp_path: Path) -> None:
    keywords = ", ".join(f"field_{number}=1" for number in range(5))
    source = f'{RECORD}\n\nr = R({keywords})\n\n\ndef untold():\n    """Return it."""\n'
    assert check(tmp_path, source).returncode == 0


def test_words_in_documents_count(tmp_path: Path) -> None:
    assert "README.md:1: whoever" in check(tmp_path, "x = 1\n", "For whoever reads it.\n").stderr


def test_a_count_that_fell_asks_for_a_lower_limit(tmp_path: Path) -> None:
    done = check(tmp_path, "x = 1\n", given_up_words=3)
    assert done.returncode == 1
    assert "lower the limit of 3" in done.stderr
