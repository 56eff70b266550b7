"""A small real project on which whole workflows run: real git, checks that really run, agents that play a scenario.

What the checks ask for comes bit by bit, so that each of them fails once before it passes.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from phasegate.core.machine.feature_events import AnyFeatureEvent
from phasegate.core.machine.feature_state import Feature
from phasegate.core.workflow.phases import PhaseWork, get_phase, required_artifacts
from phasegate.core.workflow.workflow_phases import WORKFLOWS
from phasegate.engine.drive.orders import start_workflow
from phasegate.engine.drive.run_feature import RunOptions, drive_feature
from phasegate.engine.journal.entries import FEATURE_STEP, read_feature_step
from phasegate.engine.journal.feature import read_feature
from phasegate.engine.project.project import Project, open_project, open_project_store
from phasegate.interfaces.cli.main import run_command
from phasegate.storage.reader import open_store_reader
from phasegate.storage.rows import GateRow, JobRow, PackageRow
from phasegate.storage.verify_audit import verify_audit
from support.dispatch_project import Step, Turn, turn
from support.entry import Done, phasegate
from support.git_project import git, make_repository, saved_work

DESCRIPTION = "Say bye to people"
SLUG = "001-say-bye-to-people"
FOLDER = f"kitty-specs/{SLUG}"
MENU = "SUGGESTED NEXT STEPS:"
BLOCK = re.compile(r"^---\nSUGGESTED NEXT STEPS:\n(?:  \[\d\] .+\n){2,4}---$", re.M)

GREET = "def greet(name):\n    return f'Hello, {name}'\n"
BYE = "def bye(name):\n    return f'Bye, {name}'\n"
TEST = """\
import unittest
from {module} import {module}


class Says(unittest.TestCase):
    def test_it_names_the_person(self):
        self.assertIn('Ada', {module}('Ada'))
"""
FILES: Mapping[str, str | bytes] = {
    "greet.py": GREET,
    "test_greet.py": TEST.format(module="greet"),
    "pyproject.toml": '[project]\nname = "greet"\nversion = "1"\n',
    "README.md": "A project that greets.\n",
    "CHANGELOG.md": "# Changelog\n",
    # Each check of the whole looks for a line that only a mending package adds.
    "whole.sh": '[ ! -e bye.py ] || grep -q "^# $1$" bye.py || { echo "bye.py lacks a line: # $1"; exit 1; }\n',
}
CHECKS = """
[checks.python]
setup = ""
build = ""
test = "python3 -m unittest -q"
lint = "! grep -n TODO *.py *.md"
typecheck = ""
coverage = ""
"""
# The gates behind the packages ask for more than a package's own manifest does.
STRICT = """
[phases."11-local-testing"]
commands = ["test", "sh whole.sh tested"]
[phases."10-cicd"]
commands = ["lint", "sh whole.sh linted"]
"""
TASKS = """\
# Tasks

- [ ] 2.1 Say bye
  - File: bye.py, test_bye.py
  - Spec: FR-BYE-001
  - Do: bye says bye to a person.
- [ ] 2.2 Tell about it
  - File: docs.md
  - Spec: FR-BYE-001
  - Do: say how to use it.
"""
SPEC = """\
<!-- spec-kitty: fr-count: 1 -->
# Feature: say bye

## Functional Requirements

<!-- sk:fr id="FR-BYE-001" priority="high" -->
- A farewell must name the person
<!-- /sk:fr -->
"""
ACCEPTANCE = """\
import unittest


class Bye(unittest.TestCase):
    def test_fr_bye_001_names_the_user(self):
        from bye import bye

        self.assertIn("Ada", bye("Ada"))
"""
_TEXTS = {"tasks.md": TASKS, "spec.md": SPEC}
PASS: Step = {"verdict": "PASS"}


def document(name: str, text: str | None = None) -> Step:
    """A document written into the feature's folder."""
    path = f"{name}bye.md" if name.endswith("/") else name
    usual = f"# {name}\n\nWhat {{workflow_phase}} found in round {{round}}.\n"
    content = text if text is not None else _TEXTS.get(name, usual)
    return {"write": f"kitty-specs/{{feature_slug}}/{path}", "content": content}


def accepts(text: str | None = None) -> Step:
    """The acceptance test of the one requirement."""
    return document("acceptance/accept_bye.py", text or ACCEPTANCE)


def plans(key: str, phases: Iterable[str], **asks: object) -> Turn:
    """A writer of a planning phase that delivers all that its gate asks for."""
    keys = tuple(phases)
    steps = [document(name) for name in required_artifacts(key, keys)]
    if key == "05-test-strategy" and keys[0] == "00-quick-scan":
        steps.append(accepts())
    return turn("plan", *steps, PASS, workflow_phase=key, **asks)


def builds(package: str, *steps: Step, **asks: object) -> Turn:
    commit = {"commit": "{wp_id}: Do what is due"}
    return turn("implement", *steps, commit, {"result": "success"}, package=package, **asks)


def file(path: str, content: str) -> Step:
    return {"write": path, "content": content}


# A package that mends does what its document says that a gate found.
MENDS = turn(
    "implement",
    {
        "run": [
            "sh",
            "-c",
            "for found in 11:tested 10:linted 08:reviewed; do"
            ' grep -q "GATE-${found%:*} did not pass" WP*.md && echo "# ${found#*:}" >> bye.py; done; true',
        ]
    },
    {"commit": "{wp_id}: Mend what was found"},
    {"result": "success"},
)
BUILDS = (
    builds("WP01", file("bye.py", BYE), file("test_bye.py", TEST.format(module="bye"))),
    builds("WP02", file("docs.md", "Call bye.\n")),
)
# The first round of each package fails one of its checks.
BUILDS_WRONGLY = (
    builds(
        "WP01",
        file("bye.py", BYE.replace("{name}", "you")),
        file("test_bye.py", TEST.format(module="bye")),
        round=1,
    ),
    builds("WP02", file("docs.md", "TODO\n"), round=1),
)
APPROVES = (turn("challenge", PASS), turn("review", PASS))
ARCHIVES = turn("archive", file("CHANGELOG.md", "# Changelog\n\n- People are told bye.\n"), PASS)


def says(phase: str, verdict: str, why: str = "It is too thin.", **asks: object) -> Turn:
    """A judge with an opinion. Its exit code is 0, whatever it says."""
    return turn(phase, {"print": why}, {"verdict": verdict}, **asks)


def smooth(phases: Iterable[str]) -> list[Turn]:
    """Everybody does all that is asked, at once."""
    keys = tuple(phases)
    writers = [plans(key, keys) for key in keys if get_phase(key).work is PhaseWork.PLANNING]
    return [*writers, *BUILDS, MENDS, *APPROVES, ARCHIVES]


class FeatureProject(NamedTuple):
    """A repository in which workflows run. The scenario lies beside it: the person's checkout stays clean."""

    root: Path
    scenario: Path

    @property
    def project(self) -> Project:
        return open_project(self.root)

    def play(self, *turns: Turn) -> None:
        """What the agents do: the first turn that fits is played."""
        self.scenario.write_text(json.dumps([*turns]), encoding="utf-8")

    def call(self, *arguments: str) -> Done:
        """A command of ours, in this process."""
        with (
            _inside(self.root),
            redirect_stdout(io.StringIO()) as out,
            redirect_stderr(io.StringIO()) as err,
        ):
            code = run_command([*arguments])
        return Done(code, out.getvalue(), err.getvalue())

    def command(self, *arguments: str) -> Done:
        """What the program's entry does with these words, in this process."""
        return phasegate(*arguments, cwd=self.root)

    def program(self, *arguments: str, env: Mapping[str, str] | None = None) -> Done:
        """The program as a person runs it, with these variables besides their own: where the process is the claim."""
        argv = [sys.executable, "-m", "phasegate", *arguments]
        environment = {**os.environ, **(env or {})}
        done = subprocess.run(
            argv, cwd=self.root, capture_output=True, text=True, timeout=300, env=environment
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, type_: str = "quick", description: str = DESCRIPTION) -> str:
        with open_project_store(self.project) as store:
            return start_workflow(self.project, store, type_, description)

    def drive(self, slug: str = SLUG, **wishes: bool) -> Feature:
        with open_project_store(self.project) as store:
            feature = drive_feature(self.project, store, slug, RunOptions(**wishes))  # type: ignore[arg-type]
        assert isinstance(feature, Feature)
        return feature

    def git(self, *arguments: str) -> str:
        return git(self.root, *arguments).strip()

    def files_of(self, branch: str) -> set[str]:
        return set(self.git("ls-tree", "-r", "--name-only", branch).splitlines())

    def show(self, branch: str, path: str) -> str:
        return git(self.root, "show", f"{branch}:{path}")

    def branches(self) -> set[str]:
        return set(self.git("branch", "--format=%(refname:short)").splitlines())

    def features(self) -> list[str]:
        reader = open_store_reader(self.project.location)
        if reader is None:
            return []
        with reader:
            return reader.features()

    def feature(self, slug: str = SLUG) -> Feature:
        reader = open_store_reader(self.project.location)
        assert reader is not None
        with reader:
            feature = read_feature(reader, slug)
        assert feature is not None
        return feature

    def happened(self, slug: str = SLUG) -> list[AnyFeatureEvent]:
        reader = open_store_reader(self.project.location)
        assert reader is not None
        with reader:
            return [
                read_feature_step(one.payload)
                for one in reader.events(slug)
                if one.kind == FEATURE_STEP
            ]

    def jobs(self, slug: str = SLUG) -> list[JobRow]:
        """The jobs on record, oldest first."""
        reader = open_store_reader(self.project.location)
        assert reader is not None
        with reader:
            return sorted(reader.jobs(slug), key=lambda job: job.started)

    def gates(self, slug: str = SLUG) -> list[GateRow]:
        reader = open_store_reader(self.project.location)
        assert reader is not None
        with reader:
            return reader.gates(slug)

    def packages(self, slug: str = SLUG) -> dict[str, PackageRow]:
        reader = open_store_reader(self.project.location)
        assert reader is not None
        with reader:
            return {row.id: row for row in reader.packages(slug)}

    def prompt(self, job: str) -> str:
        return (self.project.jobs_folder / job / "prompt.xml").read_text(encoding="utf-8")

    def prompts(self, role: str, slug: str = SLUG) -> list[str]:
        """What the agents of a role were shown, oldest first."""
        return [self.prompt(job.id) for job in self.jobs(slug) if job.phase == role]

    def state(self) -> object:
        return json.loads((self.root / ".isdlc" / "state.json").read_text(encoding="utf-8"))[
            "active_workflow"
        ]

    def audit_problems(self) -> list[str]:
        return [
            f"{problem.where}: {problem.why}"
            for problem in verify_audit(self.project.location).problems
        ]

    def saved(self, name: str) -> dict[str, str]:
        return saved_work(self.project.repository, name)

    def left_over(self) -> set[str]:
        """Checkouts and rooms that are still there; the pool of spare ones is ours to keep."""
        folders = (self.root / ".worktrees", self.project.location.data_folder / "rooms")
        found = {path.name for folder in folders if folder.is_dir() for path in folder.iterdir()}
        return {name for name in found if not name.startswith(".pool")}


def make_feature_project(
    folder: Path,
    type_: str = "quick",
    *,
    config: str = "",
    files: Mapping[str, str | bytes] = FILES,
    agents: str = "",
) -> FeatureProject:
    """A repository on `main` whose agents play a smooth way through a workflow, unless told otherwise."""
    root, scenario = folder / "repo", folder / "scenario.json"
    actor = (
        agents
        or f'[agents.actor]\nharness = "scripted"\nscenario = {json.dumps(str(scenario))}\ntimeout_s = 120\n'
    )
    make_repository(
        root,
        {
            **files,
            "phasegate.toml": f"{actor}\n{CHECKS}\n{config}\n",
            ".gitignore": "__pycache__/\n",
        },
    )
    made = FeatureProject(root, scenario)
    made.play(*smooth(WORKFLOWS.get(type_, ())))
    return made


def blocks_in(text: str) -> list[tuple[str, ...]]:
    """The items of every block in an output, in order."""
    return [tuple(re.findall(r"^  \[\d\] (.+)$", found, re.M)) for found in BLOCK.findall(text)]


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
