"""Derive the command that runs one test file from the command that runs all tests."""

from __future__ import annotations

import re

_SHELL_SYNTAX = re.compile(r"[&|;<>$`()]")
_NPM_EXEC = re.compile(r"npm exec -c '([^']*)'")
_RUNNERS = ("pytest", "unittest", "jest", "vitest", "mocha", "ava", "phpunit", "rspec")


def make_one_file_command(test_command: str, path: str) -> str:
    """Return the command for a test file; empty if the runner is not known to accept one."""
    runs_programs_of_npm = _NPM_EXEC.fullmatch(test_command)
    if runs_programs_of_npm:
        test_command = runs_programs_of_npm[1]

    commands = (_select_file(one.strip(), path) for one in test_command.split("&&"))
    command = next(filter(None, commands), "")
    if command and runs_programs_of_npm and not command.startswith("node "):
        return f"npx {command}"
    return command


def _select_file(test_command: str, path: str) -> str:
    """Return the test command for one file; empty if its runner is unknown."""
    words = test_command.split()
    if _SHELL_SYNTAX.search(test_command) or not words:
        return ""

    for index, word in enumerate(words):
        if word.rpartition("/")[2] in _RUNNERS:
            return " ".join([*words[: index + 1], path])

    if words[:2] == ["node", "--test"]:
        return f"node --test {path}"
    if words[:2] == ["go", "test"]:
        folder = path.rpartition("/")[0]
        return f"go test ./{folder}"
    if words[:2] == ["cargo", "test"] and path.startswith("tests/"):
        name = path.rpartition("/")[2].removesuffix(".rs")
        return f"cargo test --test {name}"

    return ""
