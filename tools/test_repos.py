"""Public projects by package name, from init to a merged package and a merged feature, with no command written by hand.

Usage: python tools/test_repos.py [--keep FOLDER] [NAME | FOLDER-OF-A-REPOSITORY ...]
       python tools/test_repos.py --page FILE [NAME ...]     bring their rows of the table in a page up to date

Sources come from the registries (pip download, npm pack, apt-get source), pinned, as far as they ship their tests. Each
gets a git repository, `phasegate init`, `phasegate check`, a scripted work package and a scripted `quick` feature. A
repository of this machine can be named as well: it is cloned. Needs a registry.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
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
    "python-dotenv": "pypi:python-dotenv==1.2.4",
    "minimist": "npm:minimist@1.2.8",
    "json-schema-traverse": "npm:json-schema-traverse@1.0.0",
    "fastq": "npm:fastq@1.20.3",
    "split2": "npm:split2@4.2.0",
    "process-warning": "npm:process-warning@5.1.1",
    "fastify-error": "npm:@fastify/error@4.2.1",
    "rfdc": "npm:rfdc@1.4.1",
    "qs": "npm:qs@6.17.1",
    "cjson": "deb:cjson=1.7.15",
    "jansson": "deb:jansson=2.14",
}
SLUG = "001-note"
TASKS = "# Tasks\n\n- [ ] 1.1 Add a note\n  - File: NOTE.md\n  - Spec: FR-NOTE-001\n  - Do: add a note.\n"
SPEC = """<!-- spec-kitty: fr-count: 1 -->
# Feature: a note

## Functional Requirements

<!-- sk:fr id="FR-NOTE-001" priority="high" -->
- There must be a note
<!-- /sk:fr -->
"""
DOCUMENTS = {"proposal.md": "# Proposal\nA note.\n", "spec.md": SPEC, "tasks.md": TASKS}
SCENARIO = [
    {
        "phase": "plan",
        "steps": [
            *(
                {"write": f"kitty-specs/{{feature_slug}}/{name}", "content": text}
                for name, text in DOCUMENTS.items()
            ),
            {"verdict": "PASS"},
        ],
    },
    {
        "phase": "implement",
        "steps": [
            {"write": "NOTE.md", "content": "A note.\n"},
            {"commit": "{wp_id}: Add a note"},
            {"result": "success"},
        ],
    },
    *(
        {"phase": phase, "steps": [{"verdict": "PASS"}]}
        for phase in ("challenge", "review", "archive")
    ),
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
HEAD = (
    "| project | setup | tests run | time | package | quick feature |",
    "|---|---|---|---|---|---|",
)
_MARKS = re.compile(
    r"(?<=<!-- table of tools/test_repos.py -->\n).*?(?=<!-- end of table -->)", re.S
)


class Tried(NamedTuple):
    """A row of the table."""

    name: str
    setup: str
    tests: str
    time: str
    package: str
    feature: str

    @property
    def is_done(self) -> bool:
        return self.package == self.feature == "DONE"


def main(arguments: list[str]) -> int:
    """Try each project; exit 1 if fewer than 14 of 16, or of those named all, come to DONE."""
    pairs = pairwise(arguments)
    options = {name: value for name, value in pairs if name in ("--keep", "--page")}
    names = [
        word for word in arguments if word not in options and word not in options.values()
    ] or [*PROJECTS]
    print("\n".join(HEAD), flush=True)
    rows = []
    for name in names:
        rows.append(_tried(name, options.get("--keep")))
        print(f"| {' | '.join(rows[-1])} |", flush=True)
        if page := options.get("--page"):
            write_rows(Path(page), rows)
    print(summary(rows))
    return 0 if sum(row.is_done for row in rows) * 16 >= len(rows) * 14 else 1


def write_rows(page: Path, rows: list[Tried]) -> None:
    """Put rows into the table of a page; those of other projects stay."""
    text = page.read_text()
    found = _MARKS.search(text)
    assert found is not None, f"{page} has no place for the table"
    lines = [
        line.strip("| ").split(" | ") for line in found[0].splitlines() if line.startswith("| ")
    ][1:]
    known = {words[0]: Tried(*words) for words in lines if len(words) == len(Tried._fields)}
    known |= {row.name: row for row in rows}
    ordered = [known[name] for name in PROJECTS if name in known]
    table = "\n".join(
        [*HEAD, *(f"| {' | '.join(row)} |" for row in ordered), "", summary(ordered), ""]
    )
    page.write_text(text[: found.start()] + table + text[found.end() :])


def summary(rows: list[Tried]) -> str:
    return f"{sum(row.is_done for row in rows)} of {len(rows)} came to DONE."


@contextmanager
def _room(name: str, keep: str | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="phasegate-repos-") as made:
            yield Path(made)
        return
    room = Path(keep).resolve() / Path(name).name
    shutil.rmtree(room, ignore_errors=True)
    room.mkdir(parents=True)
    yield room


def _tried(name: str, keep: str | None) -> Tried:
    started_s = time.monotonic()
    with _room(name, keep) as room:
        try:
            folder = (
                _fetched(PROJECTS[name], room) if name in PROJECTS else _cloned(Path(name), room)
            )
            setup, tests, package, feature = _carried(folder, room)
        except (subprocess.SubprocessError, OSError, ValueError) as error:
            setup, tests, package, feature = "", "", f"not fetched: {type(error).__name__}", ""
    return Tried(
        Path(name).name, setup, tests, f"{time.monotonic() - started_s:.0f} s", package, feature
    )


# --- sources


def _fetched(wanted: str, room: Path) -> Path:
    """The sources in a git repository of their own."""
    registry, _, package = wanted.partition(":")
    name, _, version = package.replace("==", "@").replace("=", "@").rpartition("@")
    if registry == "deb":
        _debian_source(name, room)
    else:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-binary",
            name,
            package,
            "-d",
            str(room),
        ]
        fetch = (
            pip
            if registry == "pypi"
            else ["npm", "pack", "--silent", package, "--pack-destination", str(room)]
        )
        subprocess.run(fetch, cwd=room, check=True, capture_output=True, timeout=600)
    archive = next(
        path
        for path in room.iterdir()
        if re.search(r"(?<!debian)\.(?:tar\.(?:gz|xz|bz2)|tgz)$", path.name)
    )
    if version not in archive.name:
        raise ValueError(f"{archive.name} is not version {version}")
    with tarfile.open(archive) as file:
        file.extractall(room / "unpacked", filter="data")
    (folder,) = (room / "unpacked").iterdir()
    for command in (
        ["init", "-q", "-b", "main"],
        ["add", "-A", "-f"],
        ["commit", "-qm", "As published"],
    ):
        subprocess.run(
            ["git", *command], cwd=folder, check=True, env=_environ(), capture_output=True
        )
    return folder


def _debian_source(name: str, room: Path) -> None:
    """The original archive of a Debian source package, by the machine's own package sources, in lists of our own."""
    apt = room / "apt"
    for folder in ("parts", "lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True)
    for path in Path("/etc/apt/sources.list.d").glob("*.sources"):
        (apt / "parts" / path.name).write_text(
            re.sub(r"(?m)^Types:.*", "Types: deb-src", path.read_text())
        )
    options = {
        "Dir::Etc::sourcelist": "none",
        "Dir::Etc::sourceparts": "parts",
        "Dir::State::lists": "lists",
        "Dir::Cache": "cache",
    }
    words = [word for key, value in options.items() for word in ("-o", f"{key}={apt / value}")]
    for order in (["update"], ["source", "--download-only", name]):
        subprocess.run(
            ["apt-get", "-qq", *words, *order],
            cwd=room,
            check=True,
            capture_output=True,
            timeout=600,
        )
    for path in room.glob("*.debian.tar.*"):
        path.unlink()


def _cloned(repository: Path, room: Path) -> Path:
    folder = room / "unpacked" / repository.name
    subprocess.run(
        ["git", "clone", "-q", str(repository), str(folder)],
        check=True,
        capture_output=True,
        timeout=600,
    )
    return folder


def _environ() -> dict[str, str]:
    who = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "Test"), ("EMAIL", "test@example.invalid"))
    }
    return {**os.environ, "PHASEGATE_TRUST": "1", **who}


# --- what is done with each


def _carried(folder: Path, room: Path) -> tuple[str, str, str, str]:
    """What setup was chosen, how many tests ran, how far the package and the feature came."""
    scenario = room / "scenario.json"
    scenario.write_text(json.dumps(SCENARIO))
    _phasegate(folder, "init")
    actor = f'[agents.actor]\nharness = "scripted"\nscenario = {json.dumps(str(scenario))}\n'
    roles = "".join(
        f'{role} = "actor"\n' for role in ("plan", "challenge", "implement", "review", "archive")
    )
    settings = (folder / "phasegate.toml").read_text()
    (folder / "phasegate.toml").write_text(
        f"{actor}[roles]\n{roles}\n{settings.partition('[checks')[1]}{settings.partition('[checks')[2]}"
    )
    tasks = folder / f"kitty-specs/{SLUG}/tasks"
    tasks.mkdir(parents=True)
    (tasks / "WP01.md").write_text(PACKAGE)
    for command in (["add", "-A"], ["commit", "-qm", "Prepare"]):
        subprocess.run(
            ["git", *command], cwd=folder, check=True, env=_environ(), capture_output=True
        )
    checked = _phasegate(folder, "check", "--json")
    (room / "check.json").write_text(checked.stdout)
    report = json.loads(checked.stdout or "{}")
    rows: dict[str, dict[str, Any]] = {row["name"]: row for row in report.get("checks", ())}
    setup, test = rows.get("setup", {}), rows.get("test", {})
    counted = f"{test.get('tests') or 0}" + (
        f", {len(test['failing'])} failing before" if test.get("failing") else ""
    )
    package = _outcome(folder, ["plan", "load", f"kitty-specs/{SLUG}"], ["dispatch", "WP01"])
    feature = _outcome(folder, ["run", "quick", "Add another note", "--merge"])
    if feature == "DONE" and not _is_merged(folder):
        feature = "not merged"
    return str(setup.get("why") or setup.get("summary", "")), counted, package, feature


def _is_merged(folder: Path) -> bool:
    asked = subprocess.run(
        ["git", "cat-file", "-e", "HEAD:NOTE.md"], cwd=folder, check=False, capture_output=True
    )
    return asked.returncode == 0


def _outcome(folder: Path, *orders: list[str]) -> str:
    for arguments in orders:
        done = _phasegate(folder, *arguments)
        words = done.stdout + done.stderr
        (folder.parent.parent / f"{arguments[0]}.txt").write_text(words)
        if done.returncode:
            told = [
                line
                for line in words.splitlines()
                if line.startswith("phasegate:") or "BLOCKED" in line
            ]
            hint = [
                line.strip()
                for line in words.splitlines()
                if line.strip().startswith(("hint:", "what to do:"))
            ]
            return " ".join([*told[:1], *hint[:1]])[:240].replace("|", "/").replace("\\n", " ")
    return "DONE"


def _phasegate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "phasegate", *arguments]
    return subprocess.run(
        program,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=3600,
        env=_environ(),
        check=False,
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
