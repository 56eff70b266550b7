"""Read the commands that a project itself runs as checks: in CI, tox, nox and pre-commit.

Detection asks for each of them, or says why not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from phasegate.core.detection.files import ProjectFiles
from phasegate.core.detection.python_requirements import read_tox_environments

_MAX_NAMED = 6
_RUN_STEP = re.compile(r"^(\s*)(?:-\s+)?run:\s*(?:[|>][-+]?\s*$|['\"]?(.*?)['\"]?\s*$)")
_PREFIXES = re.compile(
    r"^(?:-\s*|[A-Z_][A-Z0-9_]*=\S*\s+"
    r"|(?:uvx|(?:uv|poetry|pdm|hatch|pipenv|rye)\s+run)\s+(?:--(?:with|from)\s+\S+\s+|--?\S+\s+)*"
    r"|pipx\s+run\s+|python[\d.]*\s+-m\s+|npx\s+(?:-\S+\s+)*|(?:pnpm|yarn)\s+(?:exec|dlx)\s+"
    r"|coverage\s+run\s+(?:-p\s+)?-m\s+|xvfb-run\s+(?:-\S+\s+)*)+"
)
_NOX_RUN = re.compile(r"session\.run\(([^()]*)\)", re.DOTALL)
_QUOTED = re.compile(r"""['"]([^'"]+)['"]""")
_HOOK = re.compile(r"^\s*-\s*id:\s*['\"]?([\w.-]+)", re.M)
_KNOWN_HOOKS = {
    **{
        name: name
        for name in ("black", "isort", "flake8", "pylint", "codespell", "mypy", "pyright")
    },
    "ruff": "ruff",
    "ruff-check": "ruff",
    "ruff-format": "ruff format",
    "prettier": "prettier .",
}
_UNRESOLVED = re.compile(r"\$\{\{|\$\(|\{[a-z_]+|`|<<|[|>]")
# Words of a command that looks like a check
_CHECK_WORDS = re.compile(
    r"\b(?:tests?|check|lint\w*|format|fmt|types?|typecheck|typing|mypy|pyright|black|isort|ruff"
    r"|flake8|pylint|prettier|eslint|tsd|tsc|attw|publint|knip|codespell|bandit|vulture|sphinx-build"
    r"|clippy|vet|audit|doctest|size|dprint|typos|cspell|markdownlint\S*|pre-commit)\b"
)
_NOT_A_CHECK = re.compile(
    r"^(?:pip|npm (?:ci|i|install|publish|pack)|yarn install|pnpm (?:i|install)|apt|sudo|brew|echo"
    r"|cd|git|export|curl|docker|if|fi|for|do|done|set|mkdir|cp|mv|rm|uv (?:sync|pip|build|python)"
    r"|poetry (?:install|build)|gh|cat|corepack|\[|coverage (?:xml|report|html|combine)|twine)"
    r"(?:\s|$)"
)


class DeclaredCheck(NamedTuple):
    """A command that the project runs, without wrappers such as `uv run`, and where it says so."""

    line: str
    where: str

    @property
    def tool(self) -> str:
        return self.line.split(" ")[0].rpartition("/")[2]


def find_declared_checks(files: ProjectFiles) -> tuple[DeclaredCheck, ...]:
    """Return the commands of CI, tox, nox and pre-commit that look like checks, each once."""
    found: dict[str, DeclaredCheck] = {}
    for text, where in _list_lines(files):
        for part in re.split(r"&&|;", text):
            line = _PREFIXES.sub("", part.strip())
            if line[:1].isalnum() and _CHECK_WORDS.search(line) and not _NOT_A_CHECK.match(line):
                found.setdefault(line, DeclaredCheck(line, where))
    return tuple(found.values())


def describe_unasked(checks: Iterable[DeclaredCheck], asked: Iterable[str]) -> tuple[str, ...]:
    """Return a note that names the declared checks that no command runs, and why."""
    words = {word.strip("'\"()").rpartition("/")[2] for line in asked for word in line.split()}
    left = [
        f"`{check.line}` ({check.where})"
        for check in checks
        if check.tool not in words and check.tool not in ("tox", "nox", "npm", "make")
    ]
    if not left:
        return ()
    named = ", ".join(left[:_MAX_NAMED])
    if len(left) > _MAX_NAMED:
        named += f" and {len(left) - _MAX_NAMED} more"
    return (f"not asked for, because Phasegate does not recognize it as a check: {named}",)


def _list_lines(files: ProjectFiles) -> Iterator[tuple[str, str]]:
    """Yield the commands of CI, tox, nox and pre-commit, each with its source."""
    for path in sorted(files.paths):
        if path.startswith(".github/workflows/"):
            for line in _read_workflow_steps(files.get_text(path)):
                yield line, "CI"

    for name, environment in read_tox_environments(files).items():
        for line in environment.commands:
            resolved = re.sub(r"\{posargs(?::([^{}]*))?\}", r"\1", line).strip(" \\")
            yield resolved, "tox" if name == "testenv" else f"tox environment {name}"

    for call in _NOX_RUN.findall(files.get_text("noxfile.py")):
        yield " ".join(_QUOTED.findall(call)), "nox"

    hooks = _HOOK.findall(files.get_text(".pre-commit-config.yaml"))
    for hook in hooks:
        if hook in _KNOWN_HOOKS:
            yield _KNOWN_HOOKS[hook], "pre-commit"
    if others := [hook for hook in hooks if hook not in _KNOWN_HOOKS]:
        yield "pre-commit run --all-files", f"for {len(others)} other hooks"


def _read_workflow_steps(text: str) -> Iterator[str]:
    """Yield the command lines of a workflow that need nothing from CI."""
    indent = -1
    for line in text.splitlines():
        step = _RUN_STEP.match(line)
        if step:
            indent = -1 if step[2] else len(step[1])
            command = step[2] or ""
        elif indent >= 0 and len(line) - len(line.lstrip()) > indent:
            command = line.strip()
        else:
            indent = indent if not line.strip() else -1
            continue
        if command and not command.startswith("#") and not _UNRESOLVED.search(command):
            yield command
