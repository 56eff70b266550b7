"""Tell test files, their configuration and documents from the code under test, by path."""

from __future__ import annotations

import re
from functools import cache

from phasegate.core.paths.glob import compile_any
from phasegate.core.plan.planning import classify_file

_SNAPSHOT = re.compile(
    r"(?:^|/)__snapshots__/|\.(?:snap|ambr|golden|approved\.\w+)$|(?:^|/)golden/"
)
# Files that only configure a test runner: the base's version is used for the base's tests.
_RUNNER_CONFIG = re.compile(
    r"(?:^|/)(?:conftest\.py|pytest\.ini|\.pytest\.ini|tox\.ini|noxfile\.py"
    r"|(?:jest|vitest|karma|ava|playwright|cypress)\.config\.\w+|vitest\.workspace\.\w+"
    r"|\.mocharc(?:\.\w+)?|\.taprc|\.npmrc|\.c8rc(?:\.\w+)?|bunfig\.toml"
    r"|\.nycrc(?:\.\w+)?|\.coveragerc|\.?codecov\.ya?ml|sitecustomize\.py|usercustomize\.py)$"
)
# Files that configure a runner besides other things
_MIXED_CONFIG = re.compile(
    r"(?:^|/)(?:pyproject\.toml|vite\.config\.\w+|setup\.cfg|setup\.py|package\.json|Makefile|makefile|GNUmakefile"
    r"|justfile|Cargo\.toml|build\.gradle(?:\.kts)?|pom\.xml|\.github/.*|\.gitlab-ci\.yml"
    r"|azure-pipelines\.yml|\.circleci/.*|\.travis\.yml|Jenkinsfile)$"
)
_CODE = re.compile(
    r"\.(?:py|pyi|js|cjs|mjs|jsx|ts|cts|mts|tsx|vue|svelte|go|rs|java|kt|kts|scala|c|cc|cpp|cxx|h"
    r"|hh|hpp|cs|fs|rb|php|swift|m|mm|ex|exs|erl|hs|ml|clj|lua|pl|pm|r|jl|dart|zig|sh|bash|sql)$"
)


def is_test_path(path: str, patterns: tuple[str, ...] = ()) -> bool:
    """Return True for a file of the tests: test code, its helpers, data and snapshots.

    `patterns` are those of the user, in addition to the usual names.
    """
    if patterns and _compile(patterns).match(path):
        return True
    return classify_file(path) == "tests" or is_snapshot(path)


@cache
def _compile(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return compile_any(patterns)


def is_snapshot(path: str) -> bool:
    """Return True for a file with expected output."""
    return bool(_SNAPSHOT.search(path))


def is_runner_config(path: str) -> bool:
    """Return True for a file that configures only a test runner or coverage."""
    return bool(_RUNNER_CONFIG.search(path))


def is_mixed_config(path: str) -> bool:
    """Return True for a file that configures a test runner or CI among other things."""
    return bool(_MIXED_CONFIG.search(path))


def is_code(path: str) -> bool:
    """Return True for a source file of a known language."""
    return bool(_CODE.search(path))


def is_data(path: str) -> bool:
    """Return True for a file that tests may read: no code, configuration, document or snapshot."""
    is_other = is_code(path) or is_runner_config(path) or is_mixed_config(path) or is_snapshot(path)
    is_lock = path.endswith((".lock", "-lock.json", "-lock.yaml"))
    return not is_other and not is_lock and classify_file(path) != "documentation"
