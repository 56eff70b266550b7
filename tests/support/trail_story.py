"""The story that the trails of a finished feature must tell, held against git, the journal and the jobs."""

from __future__ import annotations

import hashlib
import re
import subprocess
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from phasegate.core.prompt.audience import FRONT_MATTER
from phasegate.engine.journal.entries import read_step_timed
from phasegate.engine.project.project import open_project
from phasegate.storage.reader import open_store_reader
from support.entry import phasegate

Entry = dict[str, Any]
OURS = re.compile(
    r"kitty-specs/[^/]+/(?:IMPLEMENTATION\.md|REVIEW-\w+\.md|tasks/.*|package-reviews/.*|tasks\.md)"
)
AGENTS = {
    "read_spec",
    "write_file",
    "delete_file",
    "exit",
    "answer",
    "usage",
    "write_artifact",
    "false_claim",
}


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=True
    ).stdout


def trails_of(root: Path) -> dict[str, list[Entry]]:
    """Every trail, by job, as the command line shows it."""

    def ask(*arguments: str) -> Any:
        ran = phasegate(*arguments, cwd=root)
        assert ran.code == 0, ran
        return ran.json

    listed = ask("audit", "show", "--json")["trails"]
    return {
        one["job"]: ask("audit", "show", "--job", one["job"], "--json")["entries"] for one in listed
    }


def expect_stories(
    trails: dict[str, list[Entry]], root: Path, begun: str, slug: str, branch: str = "main"
) -> None:
    """Each file that was merged, each commit, each test run of ours, at a time between its neighbours."""
    reader = open_store_reader(open_project(root).location)
    assert reader is not None
    with reader:
        jobs = {job.id: job for job in reader.jobs(slug)}
        timed = [step for one in reader.events(slug) if (step := read_step_timed(one)) is not None]
    assert trails.keys() == jobs.keys()
    for job, entries in trails.items():
        _expect_one(entries, jobs[job].agent, job)
    lines = [entry for entries in trails.values() for entry in entries]
    _expect_files(lines, root, begun, branch)
    _expect_commits(lines, root, begun, branch)
    for step in timed:
        for check in set(step.parts) - {"setup"}:
            _expect_run(lines, check, step.parts[check], step.started, step.duration_s)


def _expect_one(entries: list[Entry], agent: str, job: str) -> None:
    actions = [entry["action"] for entry in entries]
    times = [entry["ts"] for entry in entries]
    assert times == sorted(times), entries
    assert (actions.count("start"), actions.count("exit"), actions.count("answer")) == (1, 1, 1)
    start, end = actions.index("start"), actions.index("exit")
    assert actions[start + 1] == "read_spec", actions
    assert {entry["source"] for entry in entries} <= {"observed", "reported", "derived", "given"}
    for number, entry in enumerate(entries):
        assert entry["job"] == job
        if entry["action"] in ("write_file", "delete_file", "read_spec"):
            assert start < number < end, entry
        if entry["action"] in AGENTS:
            assert re.fullmatch(r"agent:[a-z-]+", entry["actor"]), entry
            assert entry["agent"] == agent
    exited = entries[end]
    assert exited["code"] == 0
    lasted_s = datetime.fromisoformat(exited["ts"]) - datetime.fromisoformat(entries[start]["ts"])
    assert 0 < exited["duration_total_s"] <= lasted_s.total_seconds() + 0.01


def _expect_files(lines: list[Entry], root: Path, begun: str, branch: str) -> None:
    written = {
        (line["path"], line["hash"]): line
        for line in lines
        if "hash" in line and line["action"] == "write_file"
    }
    found = 0
    for path in _git(root, "diff", "--name-only", begun, branch).splitlines():
        content = subprocess.run(
            ["git", "show", f"{branch}:{path}"], cwd=root, capture_output=True, check=True
        ).stdout
        if not OURS.fullmatch(path):
            if (path, hashlib.sha256(content).hexdigest()) not in written:
                content = content.removeprefix(FRONT_MATTER.encode())
            line = written[path, hashlib.sha256(content).hexdigest()]
            assert (line["source"], line["lines"]) == ("derived", len(content.splitlines())), line
            found += 1
    assert found


def _expect_commits(lines: list[Entry], root: Path, begun: str, branch: str) -> None:
    told = {line["sha"]: line["message"] for line in lines if line["action"] == "commit"}
    for row in _git(root, "log", "--format=%H %s", f"{begun}..{branch}").splitlines():
        sha, _, subject = row.partition(" ")
        changed = _git(root, "diff-tree", "--no-commit-id", "--name-only", "-r", sha).splitlines()
        assert told.get(sha) == subject or (changed and all(map(OURS.fullmatch, changed))), row


def _expect_run(lines: list[Entry], check: str, took_s: float, since: str, step_s: float) -> None:
    """A command that the journal says was run in a step has a line, in that step's time."""
    last = datetime.fromisoformat(since) + timedelta(seconds=step_s + 0.1)
    for line in lines:
        took = abs(line.get("duration_ms", -9) - took_s * 1000) <= 1
        if (
            line.get("check") == check
            and took
            and since <= line["ts"]
            and datetime.fromisoformat(line["ts"]) <= last
        ):
            assert line["action"] == ("run_tests" if check in ("test", "coverage") else "run_check")
            assert (line["source"], line["actor"]) == ("observed", "phasegate")
            assert line["command"]
            assert {"exit_code", "evidence", "commit"} <= line.keys()
            assert check != "test" or line["tests"] > 0
            return
    raise AssertionError(f"{check} of the step at {since} is in no trail")
