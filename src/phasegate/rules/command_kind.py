"""What a command line that an agent reports is for: tests, another check, or something else. Told, never believed."""

from __future__ import annotations

import re

from phasegate.rules.trail import Action

_SCRIPTS = r"(?:npm|pnpm|yarn|bun)(?: run)?(?: -\S+)* "
_TESTS = re.compile(
    r"\b(?:pytest|unittest|nose2|tox|nox|jest|vitest|mocha|ctest|rspec|phpunit|cargo nextest)\b"
    rf"|\b(?:cargo|go|dotnet|mvn|gradle|gradlew|deno) (?:[\w:.-]+ )*?test\b|\b{_SCRIPTS}test\b|\bmake (?:\S+ )*test"
)
_CHECKS = re.compile(
    r"\b(?:ruff|flake8|pylint|mypy|pyright|eslint|tsc|prettier|golangci-lint|staticcheck|rubocop)\b"
    rf"|\bcargo (?:check|build|clippy|fmt)\b|\bgo (?:vet|build)\b|\b{_SCRIPTS}(?:lint|typecheck|build)\b"
    r"|\bmake (?:\S+ )*(?:check|lint|build)\b"
)
_LONGEST_READ = 2_000


def action_of_command(line: str) -> Action:
    """How the trail names a command: where it is several in one, tests go before the rest."""
    line = line[:_LONGEST_READ]
    if _TESTS.search(line):
        return Action.RUN_TESTS
    return Action.RUN_CHECK if _CHECKS.search(line) else Action.RUN_COMMAND
