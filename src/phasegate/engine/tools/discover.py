"""Let an agent propose how a project is set up and tested, and keep the commands that pass
(`discover`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from difflib import unified_diff
from typing import NamedTuple

import msgspec

from phasegate.config.settings import CheckSettings
from phasegate.core.paths.own_folders import CONFIG_FILE
from phasegate.core.paths.repo_path import list_path_and_parents
from phasegate.core.plan.work_package import PROFILES
from phasegate.engine.checks.run_baseline import (
    BaselineReport,
    BaseTree,
    CheckRow,
    OnCommand,
    make_check_rows,
    make_whole_base,
)
from phasegate.engine.project.agents import choose_agent
from phasegate.engine.project.project import Project
from phasegate.engine.tools.agent_trial import ask_agent
from phasegate.errors import StateConflict
from phasegate.files.durable_write import replace_file
from phasegate.prompts.agent_files import load_shipped_files
from phasegate.prompts.shipped_texts import render_instructions
from phasegate.storage.journal_store import Store
from phasegate.typed import read_value
from phasegate.workspace.repository.commit_log import list_blobs

PURPOSES = ("setup", "build", "test", "lint", "typecheck")
ROLE_FILES = ("discover-orchestrator.md", "test-evaluator.md")
MAX_COMMAND_CHARS = 2_000
_TOML_BLOCK = re.compile(r"^```toml\n(.*?)^```\s*$", re.M | re.S)


class Discovery(NamedTuple):
    """The proposed commands, the results of running them, and the new `phasegate.toml`."""

    agent: str
    job: str
    proposed: dict[str, str]
    kept: dict[str, str]
    checks: tuple[CheckRow, ...]
    diff: str
    before: str
    after: str


def discover_checks(
    project: Project, store: Store, commit: str, agent: str | None, listener: OnCommand
) -> Discovery:
    """Ask an agent, run its proposal on a clean checkout of a commit, and keep the passing
    commands.
    """
    known = make_whole_base(project, commit).get_reports(listener)
    member = choose_agent(project, "review", "", agent)
    text = render_instructions(
        "discover", {"ROLES": _read_role_texts(), "KNOWN": "\n".join(map(_render_report, known))}
    )
    job, answer = ask_agent(project, store, member, commit, text)
    folders = {
        parent
        for path in list_blobs(project.repository, commit)
        for parent in list_path_and_parents(path)[1:]
    }
    proposed = parse_proposal(answer, folders, known[0].root if len(known) == 1 else "")
    tables = {root: _table_for(project, known, root) for root in proposed}
    tried = {tables[root].name: _as_checks(tables[root], lines) for root, lines in proposed.items()}
    rows = [
        row
        for report in _run_proposal(project, commit, tried, listener)
        for row in make_check_rows(report)
    ]
    kept = {root: _passed_commands(root, lines, rows) for root, lines in proposed.items()}
    path = project.root / CONFIG_FILE
    before = after = path.read_text(encoding="utf-8") if path.exists() else ""
    for root, lines in kept.items():
        if lines:
            after = with_commands(after, tables[root].name, lines, root=tables[root].root)

    diff = "".join(
        unified_diff(before.splitlines(True), after.splitlines(True), CONFIG_FILE, CONFIG_FILE)
    )
    shown = tuple(row for row in rows if row.root in proposed)

    return Discovery(
        agent=member.name,
        job=job,
        proposed=_flatten_commands(proposed),
        kept=_flatten_commands(kept),
        checks=shown,
        diff=diff,
        before=before,
        after=after,
    )


class _ChecksTable(NamedTuple):
    """A table of checks in the configuration; `root` is None if it applies by project type."""

    name: str
    root: str | None


def _table_for(project: Project, known: Sequence[BaselineReport], root: str) -> _ChecksTable:
    """Return the existing table of a root, or the new one for its commands."""
    existing = next(
        (name for name, checks in project.config.checks.items() if checks.root == root), None
    )
    if existing is not None:
        return _ChecksTable(existing, root)
    if len(known) == 1 and known[0].root == root == "" and known[0].profile:
        return _ChecksTable(known[0].profile, None)

    name = re.sub(r"[^A-Za-z0-9_-]+", "-", root) or "project"
    return _ChecksTable(
        f"{name}-root" if name in PROFILES or name in project.config.checks else name, root
    )


def _as_checks(table: _ChecksTable, lines: Mapping[str, str]) -> CheckSettings:
    return read_value(
        {**lines, **({} if table.root is None else {"root": table.root})}, CheckSettings
    )


def _passed_commands(
    root: str, lines: Mapping[str, str], rows: Sequence[CheckRow]
) -> dict[str, str]:
    """Return the commands of a root that passed; none if its setup failed."""
    rows_by_name = {row.name: row for row in rows if row.root == root}
    if (setup := rows_by_name.get("setup")) is not None and setup.is_failed:
        return {}
    return {
        name: line
        for name, line in lines.items()
        if name in rows_by_name and rows_by_name[name].outcome == "passed"
    }


def _flatten_commands(commands: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return commands by purpose, with the folder's name as a prefix if there is one."""
    return {
        f"{root}: {name}" if root else name: line
        for root, lines in commands.items()
        for name, line in lines.items()
    }


def discover_branch_checks(
    project: Project, store: Store, branch: str, agent: str | None, listener: OnCommand
) -> Discovery:
    """Run `discover_checks` on the head of a branch."""
    return discover_checks(project, store, project.refs.fetch(branch)[branch], agent, listener)


def write_discovery(project: Project, discovery: Discovery) -> None:
    """Write the settings that were shown, unless the file has changed since."""
    path = project.root / CONFIG_FILE
    if (path.read_text(encoding="utf-8") if path.exists() else "") != discovery.before:
        raise StateConflict(f"{CONFIG_FILE} has changed since discover ran", "run discover again")
    replace_file(path, discovery.after.encode(), 0o644)


def _run_proposal(
    project: Project, commit: str, checks: Mapping[str, CheckSettings], listener: OnCommand
) -> tuple[BaselineReport, ...]:
    """Run an agent's proposal: without the user's credentials, and without filling a cache."""
    config = msgspec.structs.replace(project.config, checks={**project.config.checks, **checks})
    base: BaseTree = make_whole_base(project._replace(config=config), commit)
    base.user_commit = None
    base.keeps_report = False

    return base.get_reports(listener, force=True)


def parse_proposal(
    answer: str, folders: Collection[str], default_root: str = ""
) -> dict[str, dict[str, str]]:
    """Parse the commands in the last TOML block of an answer, by root.

    The name of a table is a folder of the tree. Commands outside of tables belong to
    `default_root`; if it also has a table, the commands in the table take precedence. Two tables
    for one folder, anything else, or no command at all, is refused.
    """
    blocks = _TOML_BLOCK.findall(answer.replace("\r\n", "\n"))

    try:
        document = tomllib.loads(blocks[-1]) if blocks else {}
    except tomllib.TOMLDecodeError as error:
        raise StateConflict(
            f"the agent's proposal is not TOML: {error}",
            "run discover again, or with another agent",
        ) from error

    tables = {name.strip("/"): value for name, value in document.items() if isinstance(value, dict)}
    names = [name.strip("/") for name, value in document.items() if isinstance(value, dict)]
    invalid = [root for root in tables if root not in folders or names.count(root) > 1]
    outside = {name: value for name, value in document.items() if not isinstance(value, dict)}
    if outside:
        tables = {**tables, default_root: {**outside, **tables.get(default_root, {})}}

    invalid += [
        name
        for lines in tables.values()
        for name, line in lines.items()
        if not _is_command(name, line)
    ]

    if invalid or not any(tables.values()):
        problem = f"{', '.join(invalid)} cannot be used" if invalid else "it has no commands"
        raise StateConflict(
            f"the agent's proposal: {problem}", "run discover again, or with another agent"
        )

    return {
        root: {purpose: lines[purpose].strip() for purpose in PURPOSES if purpose in lines}
        for root, lines in tables.items()
    }


def _is_command(name: str, line: object) -> bool:
    return name in PURPOSES and isinstance(line, str) and _is_command_text(line.strip())


def _is_command_text(text: str) -> bool:
    return bool(text) and len(text) <= MAX_COMMAND_CHARS and text.isprintable()


def with_commands(
    text: str, name: str, commands: Mapping[str, str], *, root: str | None = None
) -> str:
    """Return the text of a configuration with these commands in the table `[checks.NAME]`.

    The table is added if it is missing. Other lines are unchanged.
    """
    keys = {**({} if root is None else {"root": root}), **commands}
    new = [f"{key} = {_quote_toml(line)}\n" for key, line in keys.items()]
    lines = text.splitlines(True)
    header = f"[checks.{name}]"
    at = next(
        (number for number, line in enumerate(lines) if line.split("#")[0].strip() == header), None
    )

    if at is None:
        while text and not text.endswith("\n\n"):
            text += "\n"

        return f"{text}{header}\n{''.join(new)}"

    if not lines[at].endswith("\n"):
        lines[at] += "\n"

    end = next(
        (n for n in range(at + 1, len(lines)) if lines[n].lstrip().startswith("[")), len(lines)
    )
    kept = [line for line in lines[at + 1 : end] if line.split("=")[0].strip() not in keys]

    return "".join([*lines[: at + 1], *new, *kept, *lines[end:]])


def _quote_toml(line: str) -> str:
    return '"' + line.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _read_role_texts() -> str:
    return "\n\n".join(file.text for file in load_shipped_files() if file.name in ROLE_FILES)


def _render_report(report: BaselineReport) -> str:
    rows = make_check_rows(report)
    lines = [f"In `{report.root}`:"] if report.root else []
    for row in rows:
        command = f" ({row.command})" if row.command else ""
        lines.append(f"- {row.name}: {row.outcome} - {row.summary}{command}")
    for row in rows:
        if row.is_failed:
            lines += (f"    {line}" for line in row.output)

    return "\n".join(lines)
