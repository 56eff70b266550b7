"""The tool that finds code which only tests use finds it, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "unused_code.py"
SETTINGS = """
[project.scripts]
product = "product.__main__:main"
[tool.unused_code]
most_repeated_class_names = {most}
[tool.unused_code.kept]
{kept}
"""
PROJECT = {
    "pyproject.toml": SETTINGS.format(most=1, kept=""),
    "src/product/__init__.py": "",
    "src/product/__main__.py": "from product.doors import answer\n\n\ndef main():\n    return answer()\n",
    "src/product/doors/__init__.py": "def answer():\n    return 1\n",
}


def run_tool(
    root: Path, files: Mapping[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    """The tool over a project with these files besides its own."""
    for name, text in {**PROJECT, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    command = [sys.executable, str(TOOL), "--root", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def unused(root: Path, files: Mapping[str, str]) -> list[str]:
    done = run_tool(root, files)
    assert "Traceback" not in done.stderr
    names = [line.partition(":")[0] for line in done.stderr.splitlines()]
    assert done.returncode == bool(names)
    return names


def door(body: str, before: str = "") -> dict[str, str]:
    """A product whose only door does this."""
    return {"src/product/doors/__init__.py": f"{before}\n\ndef answer():\n    {body}\n"}


def test_a_product_that_uses_all_it_has_passes(tmp_path: Path) -> None:
    assert unused(tmp_path, {}) == []


UNUSED = {
    "a module that nobody imports": ({"src/product/rule.py": "X = 1\n"}, ["product.rule"]),
    "a module for tests alone": (
        {"src/product/rule.py": "X = 1\n", "tests/test_rule.py": "from product.rule import X\n"},
        ["product.rule"],
    ),
    "a function beside one that is used": (
        {
            **door("return used()", "from product.rule import used"),
            "src/product/rule.py": "def used(): 1\ndef idle(): 2\n",
        },
        ["product.rule.idle"],
    ),
    "what only such a function uses": (
        door("return 1", "def _helper(): 2\ndef idle(): return _helper()\nLIMIT = 3"),
        ["product.doors.LIMIT", "product.doors._helper", "product.doors.idle"],
    ),
    "two that use each other": (
        door("return 1", "def one(): return two()\ndef two(): return one()"),
        ["product.doors.one", "product.doors.two"],
    ),
    "one that uses itself": (
        door("return 1", "def again(): return again()"),
        ["product.doors.again"],
    ),
    "a method that nobody calls": (
        door("return Thing().used()", "class Thing:\n    def used(self): 1\n    def idle(self): 2"),
        ["product.doors.Thing.idle"],
    ),
    "a class, once, for all its methods": (
        door("return 1", "class Thing:\n    def idle(self): 2"),
        ["product.doors.Thing"],
    ),
    "what is imported and not used": (
        {**door("return 1", "from product import rule"), "src/product/rule.py": "def idle(): 2\n"},
        ["product.rule.idle"],
    ),
}


@pytest.mark.parametrize(("files", "names"), UNUSED.values(), ids=UNUSED)
def test_what_nothing_but_tests_uses_is_named(
    tmp_path: Path, files: dict[str, str], names: list[str]
) -> None:
    assert unused(tmp_path, files) == names


RULE = "def used(): 1\n"
USED = {
    "behind a dot": {
        **door("return rule.used()", "from product import rule"),
        "src/product/rule.py": RULE,
    },
    "under another name": {
        **door("return mine()", "from product.rule import used as mine"),
        "src/product/rule.py": RULE,
    },
    "by an import inside a function": {
        **door("from product.rule import used; return used()"),
        "src/product/rule.py": RULE,
    },
    "through another module": {
        **door("return used()", "from product.way import used"),
        "src/product/way.py": "from product.rule import used as used\n",
        "src/product/rule.py": RULE,
    },
    "in a table of names": {
        **door("return TABLE", 'TABLE = {"x": ("rule", "used", "help")}'),
        "src/product/doors/rule.py": RULE,
    },
    "in a table of public names": {
        "src/product/__init__.py": '_HOME = {"used": "product.rule"}\ndef __getattr__(name): return _HOME[name]\n',
        "src/product/rule.py": RULE,
    },
    "by a module's name that is put together": {
        **door('return import_module(f"product.rules.{kind}").used'),
        "src/product/rules/__init__.py": "",
        "src/product/rules/one.py": RULE,
    },
    "in a program for another interpreter": {
        **door('return "from product.rule import used; used()"'),
        "src/product/rule.py": RULE,
    },
    "by a decorator that registers it": door(
        "return group", "group = 1\n@group.command()\ndef command(): 2"
    ),
    "as a type": door("x: Thing = 1", "class Thing: ..."),
    "as a base": door("return Thing()", "class Base: ...\nclass Thing(Base): ..."),
    "by somebody else's base": door(
        "return Thing()", "import click\nclass Thing(click.Group):\n    def called(self): 1"
    ),
    "by a tool": {
        "tools/make.py": "from product.rule import used\nprint(used())\n",
        "src/product/rule.py": RULE,
    },
}


@pytest.mark.parametrize("files", USED.values(), ids=USED)
def test_what_the_product_uses_in_any_way_is_left_alone(
    tmp_path: Path, files: dict[str, str]
) -> None:
    assert unused(tmp_path, files) == []


def test_what_is_kept_for_a_reason_is_left_alone_and_what_it_uses(tmp_path: Path) -> None:
    kept = SETTINGS.format(most=0, kept='"product.doors.idle" = "others call it"')
    idle = door("return 1", "def _helper(): 2\ndef idle(): return _helper()")
    assert unused(tmp_path, {**idle, "pyproject.toml": kept}) == []


def test_a_kept_name_that_is_gone_is_refused(tmp_path: Path) -> None:
    kept = SETTINGS.format(most=0, kept='"product.doors.gone" = "others call it"')
    done = run_tool(tmp_path, {"pyproject.toml": kept})
    assert (done.returncode, done.stderr) == (
        1,
        "product.doors.gone is kept in pyproject.toml, but not there\n",
    )


TWICE = {
    **door("return Thing(), rule.Thing()", "from product import rule\nclass Thing: ..."),
    "src/product/rule.py": "class Thing: ...\n",
}


def test_class_names_that_are_used_twice_are_listed(tmp_path: Path) -> None:
    done = run_tool(tmp_path, TWICE, "--class-names")
    assert done.stdout == "Thing: src/product/doors/__init__.py src/product/rule.py\n"
    assert done.returncode == 0


def test_more_repeated_class_names_than_allowed_are_refused(tmp_path: Path) -> None:
    assert run_tool(tmp_path, TWICE).returncode == 0
    refused = run_tool(tmp_path, {**TWICE, "pyproject.toml": SETTINGS.format(most=0, kept="")})
    assert refused.returncode == 1
    assert "1 class names are used more than once, 0 are allowed" in refused.stderr
