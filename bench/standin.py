"""A stand-in for a recorded feature: a library of the size of python-humanize, three work packages, scripted agents.

The documents have the sizes of the recorded ones. No real model is asked: what counts is what the agents would be given.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from phasegate.engine.project.project import open_project
from phasegate.storage.reader import open_store_reader

REQUEST = (
    "Add naturallist(items, max_items=None) to the library: it joins names with commas and 'and', and says how many"
    " more there are when there are too many. The command line gets it too, and the docs say how to use it."
)
LANGUAGES = [
    "ar",
    "az",
    "bn",
    "ca",
    "da",
    "de",
    "el",
    "eo",
    "es",
    "eu",
    "fa",
    "fi",
    "fr",
    "he",
    "hu",
    "id",
    "it",
    "ja",
    "kl",
    "ko",
    "nb",
    "nl",
    "pl",
    "pt",
    "pt_BR",
    "ro",
    "ru",
    "sk",
    "sl",
    "sv",
    "tr",
    "uk",
    "vi",
    "zh_CN",
    "zh_HK",
]
MODULES = {"filesize": 4, "i18n": 6, "lists": 2, "number": 14, "time": 16, "cli": 3}
PACKAGES = {
    "WP01": ("src/humanize/lists.py", "tests/test_lists.py"),
    "WP02": ("src/humanize/cli.py", "tests/test_cli.py"),
    "WP03": ("docs/usage.md",),
}


class JobPrompt(NamedTuple):
    """What one agent was given."""

    role: str
    phase: str
    package: str
    xml: str


def _module(name: str, functions: int) -> str:
    head = f'"""Humanizing functions: {name}."""\n\nfrom __future__ import annotations\n\n'
    body = '''
def {name}_{number}(value: float, minimum: str = "seconds", format: str = "%.2f") -> str:
    """Return a human readable text for a value.

    Examples:
        >>> {name}_{number}(3.0)
        '3.00'

    Args:
        value: The number to convert.
        minimum: The smallest unit to use.
        format: Standard Python format of the number.
    """
    if value < 0:
        return "-" + {name}_{number}(-value, minimum, format)

    text = format % value
    return text.rstrip("0").rstrip(".") if "." in text else text

'''
    return head + "\n".join(body.format(name=name, number=n) for n in range(functions))


def _test(name: str, functions: int) -> str:
    cases = "".join(
        f"def test_{name}_{n}() -> None:\n    assert humanize.{name}.{name}_{n}(3.5) == '3.5'\n\n\n"
        for n in range(functions)
    )
    return f'"""Tests of {name}."""\n\nimport humanize.{name}\n\n\n{cases}'


def project_files() -> dict[str, str]:
    """Return the files of the library."""
    files = {
        "README.md": "# humanize\n\nTurns values into text for people.\n",
        "pyproject.toml": '[project]\nname = "humanize"\nversion = "4.0"\n[tool.ruff]\nline-length = 88\n',
        "CONTRIBUTING.md": "# Contributing\n\n"
        + "Run `tox` before a pull request. Add a test for each change. Sign nothing.\n" * 12,
        "agentd/project.md": "# humanize\n\nA library without dependencies.\n\n## Language\n\nPython 3.10 and later, typed.\n\n"
        "## Commands\n\n<!-- How is it built and tested? -->\n\n## Rules\n\n<!-- What must not change? -->\n",
        "docs/index.md": "# humanize\n",
        "docs/usage.md": "# Usage\n\n" + "Call a function with a value.\n" * 20,
        "src/humanize/__init__.py": '"""Main package."""\n',
        ".gitignore": "__pycache__/\n",
    }
    for name, functions in MODULES.items():
        files[f"src/humanize/{name}.py"] = _module(name, functions)
        files[f"tests/test_{name}.py"] = _test(name, functions)
    for language in LANGUAGES:
        files[f"src/humanize/locale/{language}/LC_MESSAGES/humanize.po"] = 'msgid ""\nmsgstr ""\n'
    return files


SPEC = """\
---
audience: [agents, developers]
---
<!-- spec-kitty: fr-count: 4 -->
<!-- spec-kitty: fr-coverage: 100% -->
# Feature: lists as text

## Overview

`naturallist` joins the names of a list for people. It is a function of the library and a command.

## Functional Requirements

<!-- sk:fr id="FR-LIST-001" priority="high" -->
- `naturallist(items)` joins items with commas, and the last two with " and "
<!-- /sk:fr -->

<!-- sk:fr id="FR-LIST-002" priority="high" -->
- With `max_items` it names the first items and ends in "and N more"; a limit below 1 raises ValueError
<!-- /sk:fr -->

<!-- sk:fr id="FR-LIST-003" priority="medium" -->
- The command `humanize list A B C` prints the same text; without arguments it prints an empty line
<!-- /sk:fr -->

<!-- sk:fr id="FR-LIST-004" priority="low" -->
- The usage page shows the function with and without a limit
<!-- /sk:fr -->

## Acceptance Scenarios

### Scenario: three names (FR-LIST-001)

- **WHEN** `naturallist(["a", "b", "c"])` is called
- **THEN** the result is `a, b and c`; one name gives the name, none the empty text

### Scenario: too many names (FR-LIST-002)

- **WHEN** `naturallist(["a", "b", "c", "d"], max_items=2)` is called
- **THEN** the result is `a, b and 2 more`
- **WHEN** the limit is 0
- **THEN** ValueError names the limit

### Scenario: on the command line (FR-LIST-003)

- **WHEN** `humanize list a b c` is run
- **THEN** it prints `a, b and c` and exits with 0

### Scenario: documented (FR-LIST-004)

- **WHEN** a reader opens the usage page
- **THEN** both calls are there with their results

## Out of Scope

- Translation of "and" and "more": the catalogues of 35 languages have no entry for them
- Items that are no text: callers convert them

## Open Questions

- None
"""
TASKS = """\
# Tasks: lists as text

## 2. Logic

- [ ] 2.1 Join a list
  - File: src/humanize/lists.py, tests/test_lists.py
  - Spec: FR-LIST-001, FR-LIST-002
  - Do: naturallist joins items as the scenarios say, refuses a limit below 1, and has a test for each scenario.

## 3. Integration

- [ ] 3.1 Offer it on the command line
  - File: src/humanize/cli.py, tests/test_cli.py
  - Spec: FR-LIST-003
  - Do: the command list prints what naturallist returns for its arguments.

- [ ] 3.2 Show it on the usage page
  - File: docs/usage.md
  - Spec: FR-LIST-004
  - Do: the page has both calls with their results.
"""


def _prose(name: str, characters: int) -> str:
    """A document of a recorded size about this feature."""
    parts = [f"---\naudience: [agents, developers]\n---\n# {name}\n"]
    number = 0
    while sum(map(len, parts)) < characters:
        number += 1
        parts.append(
            f"\n## Part {number}\n\nlists.py joins the names in case {number}; cli.py prints the text, and the page of the docs shows call {number}."
            f" FR-LIST-00{number % 4 + 1} says what happens at limit {number}, with test case T{number} in tests/test_lists.py.\n"
        )
    return "".join(parts)


# Recorded sizes, in characters
DOCUMENTS = {
    "quick-scan.md": _prose("Quick scan", 1_500),
    "proposal.md": _prose("Proposal: lists as text", 1_900),
    "spec.md": SPEC,
    "impact-analysis.md": _prose("Impact analysis", 3_500),
    "architecture.md": _prose("Architecture", 2_300),
    "plan.md": _prose("Plan", 2_500),
    "specs/lists.md": _prose("Capability: lists", 2_000),
    "test-strategy.md": _prose("Test strategy", 3_200),
    "tasks.md": TASKS,
}
BY_PHASE = {
    "00-quick-scan": ("quick-scan.md",),
    "01-requirements": ("proposal.md", "spec.md", "tasks.md"),
    "02-impact-analysis": ("impact-analysis.md",),
    "03-architecture": ("architecture.md",),
    "04-design": ("plan.md", "specs/lists.md"),
    "05-test-strategy": ("test-strategy.md", "tasks.md"),
}
NATURALLIST = '''

def naturallist(items: list[str], max_items: int | None = None) -> str:
    """Join names for people.

    Examples:
        >>> naturallist(["a", "b", "c"])
        'a, b and c'
    """
    if max_items is not None and max_items < 1:
        raise ValueError(f"max_items must be at least 1, not {max_items}")

    names = list(items)
    if max_items is not None and len(names) > max_items:
        names = [*names[:max_items], f"{len(names) - max_items} more"]
    if len(names) < 2:
        return "".join(names)

    return ", ".join(names[:-1]) + " and " + names[-1]
'''
CASES = "".join(
    f"def test_naturallist_{n}() -> None:\n    assert humanize.lists.naturallist(['a'] * {n}, max_items=2)\n\n\n"
    for n in range(1, 6)
)


def _turns() -> list[dict[str, object]]:
    files = project_files()
    changed = {
        "src/humanize/lists.py": files["src/humanize/lists.py"] + NATURALLIST,
        "tests/test_lists.py": files["tests/test_lists.py"] + CASES,
        "src/humanize/cli.py": files["src/humanize/cli.py"]
        + NATURALLIST.replace("naturallist", "print_list"),
        "tests/test_cli.py": files["tests/test_cli.py"] + CASES.replace("lists", "cli"),
        "docs/usage.md": files["docs/usage.md"]
        + "\n## Lists\n\n`naturallist(['a', 'b'])` gives `a and b`.\n" * 3,
    }
    passed = {"verdict": "PASS"}
    turns: list[dict[str, object]] = []
    for phase, names in BY_PHASE.items():
        written = [
            {"write": f"kitty-specs/{{feature_slug}}/{name}", "content": DOCUMENTS[name]}
            for name in names
        ]
        turns.append({"phase": "plan", "workflow_phase": phase, "steps": [*written, passed]})
    for package, paths in PACKAGES.items():
        steps: list[dict[str, object]] = [
            {"write": path, "content": changed[path]} for path in paths
        ]
        steps += [{"commit": "{wp_id}: Add naturallist"}, {"result": "success"}]
        turns.append({"phase": "implement", "package": package, "steps": steps})
    review = "The change does what the tasks say; each scenario has a test. Findings: none"
    turns += [
        {"phase": role, "steps": [{"print": review}, passed]} for role in ("challenge", "review")
    ]
    return [*turns, {"phase": "archive", "steps": [passed]}]


@contextmanager
def played(workflow: str, *options: str) -> Iterator[list[JobPrompt]]:
    """Run the feature by a workflow and yield what each agent was given."""
    with tempfile.TemporaryDirectory() as room:
        folder, scenario = Path(room) / "repo", Path(room) / "scenario.json"
        scenario.write_text(json.dumps(_turns()), encoding="utf-8")
        settings = (
            f'[agents.actor]\nharness = "scripted"\nscenario = {json.dumps(str(scenario))}\n'
            '[run]\nsandbox = "none"\n[evidence]\nenabled = false\nacceptance = []\n'
            '[checks.python]\nsetup = ""\nbuild = ""\ntest = "echo 42 passed in 0.10s"\nlint = "true"\ntypecheck = ""\ncoverage = ""\n'
        )
        for path, text in {**project_files(), "phasegate.toml": settings}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        environment = {
            **os.environ,
            "XDG_STATE_HOME": f"{room}/state",
            # The repository is ours
            "PHASEGATE_TRUST": "1",
            "GIT_CONFIG_GLOBAL": f"{room}/git",
            "GIT_CONFIG_SYSTEM": os.devnull,
        }
        Path(room, "git").write_text(
            "[user]\nname = Ada\nemail = ada@example.org\n[init]\ndefaultBranch = main\n"
        )
        for command in (
            ["git", "init", "-q"],
            ["git", "add", "-A"],
            ["git", "commit", "-qm", "The library"],
        ):
            subprocess.run(command, cwd=folder, env=environment, check=True)
        done = subprocess.run(
            [sys.executable, "-m", "phasegate", "run", workflow, REQUEST, *options, "--merge"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(
                f"the stand-in did not run to its end:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
            )
        with patch.dict(os.environ, environment):
            prompts = read_prompts(folder)
        yield prompts


def read_prompts(folder: Path) -> list[JobPrompt]:
    """Return what each agent of a repository's first feature was given, in order."""
    project = open_project(folder)
    reader = open_store_reader(project.location)
    assert reader is not None
    with reader:
        (slug, *_) = [name for name in reader.features() if name]
        jobs = sorted(reader.jobs(slug), key=lambda job: job.started)
    return [
        JobPrompt(
            role=job.phase,
            phase=job.workflow_phase,
            package=job.wp,
            xml=(project.jobs_folder / job.id / "prompt.xml").read_text(encoding="utf-8"),
        )
        for job in jobs
    ]
