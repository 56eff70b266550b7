"""A small feature from its start to its merge, to be disturbed on the way: two packages at once, one revision of the
plan, one change asked for by the code review and mended, the archive, the merge.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from phasegate.engine.project.project import Project, open_project
from phasegate.storage.location import Location
from phasegate.storage.reader import StoreReader, open_store_reader
from phasegate.storage.rows import JobRow
from phasegate.storage.verify_audit import verify_audit
from support.entry import Done, phasegate
from support.git_project import git, make_repository

SLUG = "001-say-bye"
FEATURE = f"feat/{SLUG}"
TYPE, DESCRIPTION = "quick", "Say bye"
CHECK = (
    "import unittest\n\n\nclass Whole(unittest.TestCase):\n    def test_it(self):\n        pass\n"
)
FILES = {"requirements.txt": "", "check.py": CHECK, "CHANGELOG.md": "# Changelog\n"}
CONFIG = """\
[agents.actor]
harness = "scripted"
scenario = "../scenario.json"
[checks.python]
setup = ""
build = ""
test = "python3 -S -m unittest -q check"
lint = ""
typecheck = ""
coverage = ""
"""
TASKS = """\
# Tasks

- [ ] 2.1 Say bye
  - File: bye.py
  - Spec: FR-BYE-001
  - Do: bye says bye.
- [ ] 2.2 Say hi
  - File: hi.py
  - Spec: FR-BYE-001
  - Do: hi says hi.
"""
SPEC = """\
# Spec
<!-- spec-kitty: fr-count=1 -->
<!-- sk:fr id="FR-BYE-001" priority="high" -->
It says bye, {how}.
<!-- /sk:fr -->
"""
Turn = dict[str, Any]


def plans(how: str, **asks: object) -> Turn:
    documents = {
        "proposal.md": "# Proposal\nSay bye.\n",
        "spec.md": SPEC.replace("{how}", how),
        "tasks.md": TASKS,
    }
    steps = [
        {"write": f"kitty-specs/{{feature_slug}}/{name}", "content": text}
        for name, text in documents.items()
    ]
    return {"phase": "plan", "steps": [*steps, {"verdict": "PASS"}], **asks}


def judges(phase: str, verdict: str, **asks: object) -> Turn:
    return {"phase": phase, "steps": [{"print": "I have read it."}, {"verdict": verdict}], **asks}


def implements(kind: str, path: str, text: str, **asks: object) -> Turn:
    steps = [{kind: path, "content": text}, {"commit": "{wp_id}: Do it"}, {"result": "success"}]
    return {"phase": "implement", "steps": steps, **asks}


SCENARIO: tuple[Turn, ...] = (
    plans("somehow", round=1),
    plans("and means it"),
    judges("challenge", "NEEDS_REVISION", round=1),
    judges("challenge", "PASS"),
    implements("write", "bye.py", "def bye(name):\n    return f'Bye, {name}'\n", package="WP01"),
    implements("write", "hi.py", "def hi(name):\n    return f'Hi, {name}'\n", package="WP02"),
    implements("append", "hi.py", "# mended\n"),
    judges("review", "NEEDS_CHANGES", workflow_phase="08-code-review", round=1),
    judges("review", "PASS"),
    {
        "phase": "archive",
        "steps": [
            {"write": "CHANGELOG.md", "content": "# Changelog\n- Bye.\n"},
            {"verdict": "PASS"},
        ],
    },
)


class FeatureRun(NamedTuple):
    """A repository in a folder, with its scenario beside it."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "repo"

    @property
    def scenario(self) -> Path:
        return self.folder / "scenario.json"

    @property
    def project(self) -> Project:
        return open_project(self.root)

    @property
    def state_file(self) -> Path:
        return self.root / ".isdlc/state.json"

    def play(self, *turns: Turn) -> None:
        self.scenario.write_text(json.dumps([*turns]), encoding="utf-8")

    def git(self, *arguments: str) -> str:
        return git(self.root, *arguments).strip()

    def argv(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "phasegate", *arguments]

    def command(self, *arguments: str) -> Done:
        """What the program's entry does with these words, in this process."""
        return phasegate(*arguments, cwd=self.root)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The program, as a person runs it, to its end: where the process is the claim."""
        return subprocess.run(
            self.argv(*arguments), cwd=self.root, capture_output=True, text=True, timeout=300
        )

    def reader(self) -> StoreReader:
        reader = open_store_reader(self.project.location)
        assert reader is not None
        return reader

    def jobs(self) -> list[JobRow]:
        with self.reader() as reader:
            return sorted(reader.jobs(SLUG), key=lambda job: job.started)

    def recorded(self) -> int:
        return recorded_in(self.project.location)

    def tree(self, begun: str) -> dict[str, str]:
        """Every file of `main` with its content; when the feature began, which the documents say, is left out."""
        names = self.git("ls-tree", "-r", "--name-only", "main").splitlines()
        return {name: self.git("show", f"main:{name}").replace(begun, "(begun)") for name in names}

    def receipts(self) -> list[list[Any]]:
        """What the notes of merges say, and whether they are those on record; nothing before the merge."""
        listed = self.git("notes", "--ref=refs/notes/phasegate", "list").splitlines()
        with self.reader() as reader:
            kinds = [event for event in reader.events(SLUG) if event.kind == "receipt.written"]
        recorded = [json.loads(event.payload)["sha256"] for event in kinds]
        found = []
        for blob, commit in (line.split() for line in listed):
            text = git(self.root, "cat-file", "blob", blob).encode()
            statement = json.loads(base64.b64decode(json.loads(text)["payload"]))
            tree = self.git("rev-parse", f"{commit}^{{tree}}")
            ran = [
                one["check"] for one in statement["predicate"]["evidence"] if one["tree"] == tree
            ]
            subject = statement["subject"][0]["digest"]["gitTree"]
            found.append(
                [
                    subject == tree,
                    commit == self.git("rev-parse", "main"),
                    ran,
                    recorded == [hashlib.sha256(text).hexdigest()],
                ]
            )
        return found

    def effects(self) -> dict[str, Any]:
        """All that a run brings about, without ids and times."""
        location = self.project.location
        with self.reader() as reader:
            jobs = [
                [job.wp, job.phase, job.round] for job in reader.jobs(SLUG) if job.outcome == "done"
            ]
            gates = [[gate.phase, gate.round, gate.outcome] for gate in reader.gates(SLUG)]
            packages = [[row.id, row.state, row.round] for row in reader.packages(SLUG)]
            stages = [row.stage for row in reader.workflows()]
            begun = next(iter(reader.events(SLUG))).ts
        return {
            "receipts": self.receipts(),
            "tree": self.tree(begun),
            "main": self.git("log", "--first-parent", "--format=%s", "main").splitlines(),
            "commits": sorted(self.git("log", "--format=%s", "main").splitlines()),
            "merges": sorted(self.git("log", "--merges", "--format=%s", "main").splitlines()),
            "original": self.git(
                "ls-tree", "-r", "--name-only", f"refs/phasegate/features/{SLUG}"
            ).splitlines(),
            "branches": self.git("branch", "--format=%(refname:short)").splitlines(),
            "person": self.git("status", "--porcelain"),
            "jobs": sorted(jobs),
            "gates": gates,
            "packages": packages,
            "stages": stages,
            "view": json.loads(self.state_file.read_text(encoding="utf-8")),
            "git locks": sorted(path.name for path in (self.root / ".git").rglob("*.lock")),
            "checkouts": names_in(self.root / ".worktrees"),
            "rooms": names_in(location.data_folder / "rooms"),
            "audit": [
                f"{problem.where}: {problem.why}" for problem in verify_audit(location).problems
            ],
        }


def recorded_in(location: Location) -> int:
    """How many events are on record."""
    reader = open_store_reader(location)
    if reader is None:
        return 0
    with reader:
        return reader.last_seq(SLUG)


def names_in(folder: Path) -> list[str]:
    """What lies in a folder, but for checkouts that wait to be used again."""
    return (
        sorted(path.name for path in folder.iterdir() if path.name != ".pool")
        if folder.is_dir()
        else []
    )


def is_meant(step: str, which: str) -> bool:
    """Whether a recorded step is one of those named: `0/2`, a part of all, or by a part of its name."""
    part, slash, parts = which.partition("/")
    return zlib.crc32(step.encode()) % int(parts) == int(part) if slash else which in step


def make_feature_run(folder: Path) -> FeatureRun:
    made = FeatureRun(folder)
    make_repository(made.root, {**FILES, "phasegate.toml": CONFIG})
    made.play(*SCENARIO)
    return made
