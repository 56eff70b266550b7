"""Projects as they are made, small: from their files alone to a merged package, with tests counted by us (R1).

`make test-repos` does the same with public projects; these need no registry.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from pwd import getpwuid

import pytest

from support.dispatch_project import approves, make_project, package, turn

UNITTEST = "import unittest\nfrom thing import one\n\n\nclass T(unittest.TestCase):\n    def test_one(self):\n        self.assertEqual(one(), 1)\n"
NODE_TEST = "const test = require('node:test');\ntest('one', () => {});\ntest('two', () => {});\n"
CARGO = "#[cfg(test)]\nmod tests {\n    #[test]\n    fn one() {}\n}\n"
CMAKE = "cmake_minimum_required(VERSION 3.13)\nproject(thing C)\nadd_executable(t t.c)\nenable_testing()\nadd_test(NAME one COMMAND t)\n"
SHAPES = {
    "a package in src, nothing declared": (
        "python3",
        {
            "pyproject.toml": '[project]\nname = "thing"\nversion = "1"\n',
            "src/thing/__init__.py": "def one():\n    return 1\n",
            "tests/__init__.py": "",
            "tests/test_one.py": UNITTEST,
        },
        ("python", "thing", 1),
    ),
    "node:test, no dependencies": (
        "npm",
        {"package.json": '{"name": "thing", "scripts": {"test": "node --test"}}', "test/a.test.js": NODE_TEST},
        ("typescript", "thing", 2),
    ),
    "a crate": (
        "cargo",
        {"Cargo.toml": '[package]\nname = "thing"\nversion = "0.1.0"\nedition = "2021"\n', "src/lib.rs": CARGO},
        ("rust", "thing", 1),
    ),
    "CMake with ctest": (
        "cmake",
        {"CMakeLists.txt": CMAKE, "t.c": "int main(void) { return 0; }\n"},
        ("c", "thing", 1),
    ),
    "a Makefile": (
        "make",
        {"Makefile": "test:\n\t@cd lib && python3 -m unittest\n", "lib/thing.py": "def one():\n    return 1\n", "lib/test_one.py": UNITTEST},
        ("", "", 1),
    ),
}  # fmt: skip


@pytest.mark.demand("R1.a", "R1.b", "R1.c")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_project_comes_from_its_files_alone_to_a_merged_package(
    tmp_path: Path, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "RUSTUP_HOME", str(Path(getpwuid(os.getuid()).pw_dir, ".rustup"))
    )  # tests have another home
    program, files, (profile, name, tests) = SHAPES[shape]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not here")
    project = make_project(tmp_path, {"WP01": package(files=["NOTE.md"], checks={})}, files=files)
    note = {"write": "NOTE.md", "content": "A note.\n"}
    project.play(
        turn("implement", note, {"commit": "{wp_id}: Note"}, {"result": "success"}), approves()
    )
    data = project.command("check", "--json").json
    (root,) = data["roots"]
    test = next(row for row in data["checks"] if row["name"] == "test")
    assert (root["profile"], root["name"]) == (profile, name)
    assert (test["outcome"], test["tests"]) == ("passed", tests), test
    assert test["why"]
    report = project.dispatch()
    assert report.accepted, report.reason
    evidence = next((project.root / ".phasegate/evidence").rglob("WP01-1.md")).read_text()
    assert f"test: passed - {tests} test{'s' * (tests > 1)} ran and passed" in evidence
