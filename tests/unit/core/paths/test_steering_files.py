"""The table of steering files, compared with what programs document and with what they open."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from phasegate.core.agents.harnesses import INSTALLABLE_HARNESSES
from phasegate.core.paths.scope import is_protected
from phasegate.core.paths.steering_files import STEERING_FILES

DOCUMENTED: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[3] / "fixtures/steering_files.toml").read_text()
)
ORDINARY = (
    "src/app.py",
    "README.md",
    "package.json",
    "pyproject.toml",
    "docs/agents-guide.md",
    "src/claude.py",
    "data/auth.json",
    "src/mise/main.go",
    "rules/a.md",
    ".gitignore",
    ".github/ISSUE_TEMPLATE/bug.md",
    "src/workflows/ci.yml",
)
# Files that a package is expected to change: manifests, lock files and their fallbacks
MANIFESTS = re.compile(
    r"package\.(?:json|yaml|json5)|(?:package-lock|npm-shrinkwrap)\.json|node_modules(?:/.*)?"
    r"|pyproject\.toml|setup\.(?:cfg|py)|requirements.*|\.git(?:/.*)?|\.gitignore|yarn\.lock"
)
PROGRAMS = {
    "npm": ["npm", "config", "get", "registry"],
    "npm ls": ["npm", "ls", "--offline"],
    "pip": ["python3", "-m", "pip", "config", "list"],
    "git": ["git", "status", "--porcelain"],
}


@pytest.mark.parametrize("program", DOCUMENTED)
def test_every_documented_file_of_a_program_is_protected(program: str) -> None:
    assert DOCUMENTED[program]["docs"].startswith("https://")
    missing = [path for path in DOCUMENTED[program]["reads"] if not is_protected(path)]
    assert missing == []
    assert program in STEERING_FILES, "the table names the program that reads the files"


@pytest.mark.parametrize("path", ORDINARY)
def test_ordinary_files_are_not_protected(path: str) -> None:
    assert not is_protected(path)


def test_every_agent_program_that_we_start_has_its_documented_files() -> None:
    documented = {entry.get("harness") for entry in DOCUMENTED.values()}
    assert {*INSTALLABLE_HARNESSES} <= documented


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_program_really_looks_for_in_a_project_is_in_the_table(
    tmp_path: Path, name: str
) -> None:
    argv = PROGRAMS[name]
    if shutil.which(argv[0]) is None or shutil.which("strace") is None:
        pytest.skip(f"needs {argv[0]} and strace")
    project = tmp_path / "project"
    project.mkdir()
    (project / "package.json").write_text('{"name": "a", "version": "1.0.0"}')
    subprocess.run(["git", "init", "-q", project], check=True)
    log = tmp_path / "log"
    traced = ["strace", "-f", "-qq", "-s", "4096", "-e", "trace=file", "-o", str(log), *argv]
    if subprocess.run(["strace", "-qq", "-o", log, "true"], capture_output=True).returncode:
        pytest.skip("needs the right to trace")
    subprocess.run(
        traced,
        cwd=project,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")},
        capture_output=True,
        timeout=60,
    )
    asked = {
        found.removeprefix(f"{project}/")
        for found in re.findall(r'"([^"\n]+)"', log.read_text(errors="replace"))
        if found.startswith(f"{project}/") or (not found.startswith("/") and "/" not in found)
    }
    names = {one for one in asked if one.startswith(".") and one not in (".", "..")}
    steering = {one for one in names if not MANIFESTS.fullmatch(one)}
    assert {one for one in steering if not is_protected(one)} == set()
    if argv[0] == "npm":
        assert ".npmrc" in steering, "the control: what it looks for is seen"
