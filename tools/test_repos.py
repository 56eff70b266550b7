"""Public projects by package name, from init to a merged package, with no command written by hand; prints a table.

Usage: python tools/test_repos.py [NAME ...]

Sources come from the registries (pip download, npm pack), pinned, as far as they ship their tests. Each gets a git
repository, `phasegate init`, `phasegate check` and a scripted work package. Needs a registry.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

PROJECTS = {
    "tenacity": "pypi:tenacity==9.2.1",
    "toolz": "pypi:toolz==1.2.0",
    "freezegun": "pypi:freezegun==1.5.5",
    "markdown": "pypi:markdown==3.11.3",
    "boltons": "pypi:boltons==26.2.0",
    "idna": "pypi:idna==3.20",
    "click": "pypi:click==8.5.1",
    "pluggy": "pypi:pluggy==1.7.0",
    "humanize": "pypi:humanize==4.16.0",
    "marshmallow": "pypi:marshmallow==4.4.0",
    "flask": "pypi:flask==3.1.3",
    "sortedcontainers": "pypi:sortedcontainers==2.4.0",
    "qs": "npm:qs@6.17.1",
    "minimist": "npm:minimist@1.2.8",
    "resolve": "npm:resolve@1.22.14",
    "json-schema-traverse": "npm:json-schema-traverse@1.0.0",
    "fastq": "npm:fastq@1.20.3",
}
SLUG = "001-note"
NOTE = {"write": "NOTE.md", "content": "A note.\n"}
SCENARIO = [
    {"phase": "implement", "steps": [NOTE, {"commit": "{wp_id}: Add a note"}, {"result": "success"}]},
    {"phase": "review", "steps": [{"verdict": "PASS"}]},
]
PACKAGE = f"""---
work_package_id: WP01
title: Add a note
feature_slug: {SLUG}
file_scope: [NOTE.md]
deliverables: {{"code": ["NOTE.md"]}}
---
# Task: WP01

## Mission
Add a note.
"""


class Tried(NamedTuple):
    """A row of the table."""

    name: str
    setup: str
    tests: str
    time: str
    outcome: str


def main(names: list[str]) -> int:
    """Try each project; exit 1 if fewer than 14 of 16, or of those named all, come to DONE."""
    chosen = names or [*PROJECTS]
    rows = []
    print("| project | setup | tests run | time | outcome |\n|---|---|---|---|---|", flush=True)
    for name in chosen:
        row = _tried(name)
        print(f"| {' | '.join(row)} |", flush=True)
        rows.append(row)
    done = sum(row.outcome == "DONE" for row in rows)
    print(f"{done} of {len(rows)} came to DONE")
    return 0 if done * 16 >= len(rows) * 14 else 1


def _tried(name: str) -> Tried:
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="phasegate-repos-") as room:
        try:
            folder = _fetched(PROJECTS[name], Path(room))
            setup, tests, outcome = _carried(folder, Path(room))
        except (subprocess.SubprocessError, OSError, ValueError) as error:
            setup, tests, outcome = "", "", f"not fetched: {type(error).__name__}"
    return Tried(name, setup, tests, f"{time.monotonic() - started_s:.0f} s", outcome)


def _fetched(wanted: str, room: Path) -> Path:
    """The sources in a git repository of their own."""
    registry, _, package = wanted.partition(":")
    name = package.replace("==", "@").rpartition("@")[0]
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", name, package, "-d", str(room)]
    fetch = pip if registry == "pypi" else ["npm", "pack", "--silent", package, "--pack-destination", str(room)]
    subprocess.run(fetch, cwd=room, check=True, capture_output=True, timeout=600)
    archive = next(path for path in room.iterdir() if path.name.endswith((".tar.gz", ".tgz")))
    with tarfile.open(archive) as file:
        file.extractall(room / "unpacked", filter="data")
    (folder,) = (room / "unpacked").iterdir()
    for command in (["init", "-q", "-b", "main"], ["add", "-A", "-f"], ["commit", "-qm", "As published"]):
        subprocess.run(["git", *command], cwd=folder, check=True, env=_environ(), capture_output=True)
    return folder


def _environ() -> dict[str, str]:
    who = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "Test"), ("EMAIL", "test@example.invalid"))
    }
    return {**os.environ, **who}


def _carried(folder: Path, room: Path) -> tuple[str, str, str]:
    """What setup was chosen, how many tests ran, and how far it came."""
    scenario = room / "scenario.json"
    scenario.write_text(json.dumps(SCENARIO))
    _phasegate(folder, "init")
    actor = f'[agents.actor]\nharness = "scripted"\nscenario = {json.dumps(str(scenario))}\n'
    roles = "".join(f'{role} = "actor"\n' for role in ("plan", "challenge", "implement", "review", "archive"))
    settings = (folder / "phasegate.toml").read_text()
    (folder / "phasegate.toml").write_text(
        f"{actor}[roles]\n{roles}\n{settings.partition('[checks')[1]}{settings.partition('[checks')[2]}"
    )
    tasks = folder / f"kitty-specs/{SLUG}/tasks"
    tasks.mkdir(parents=True)
    (tasks / "WP01.md").write_text(PACKAGE)
    subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
    subprocess.run(["git", "commit", "-qm", "Prepare"], cwd=folder, check=True, env=_environ())
    report = json.loads(_phasegate(folder, "check", "--json").stdout or "{}")
    rows: dict[str, dict[str, Any]] = {row["name"]: row for row in report.get("checks", ())}
    setup, test = rows.get("setup", {}), rows.get("test", {})
    counted = f"{test.get('tests') or 0}" + (f", {len(test['failing'])} failing before" if test.get("failing") else "")
    return str(setup.get("why") or setup.get("summary", "")), counted, _outcome(folder)


def _outcome(folder: Path) -> str:
    for arguments in _orders():
        done = _phasegate(folder, *arguments)
        if done.returncode:
            words = (done.stdout + done.stderr).strip().splitlines()
            return f"{arguments[0]}: {words[0] if words else 'exit ' + str(done.returncode)}"[:150].replace("|", "/")
    return "DONE"


def _orders() -> Iterator[list[str]]:
    yield ["plan", "load", f"kitty-specs/{SLUG}"]
    yield ["dispatch", "WP01"]


def _phasegate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "phasegate", *arguments]
    return subprocess.run(
        program, cwd=folder, capture_output=True, text=True, timeout=3600, env=_environ(), check=False
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
