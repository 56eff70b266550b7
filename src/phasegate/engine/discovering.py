"""`discover`: an agent finds out how a project is set up and tested; its proposal is run, and what holds is kept."""

from __future__ import annotations

import re
import tomllib
from difflib import unified_diff
from typing import NamedTuple

import msgspec

from phasegate.config.settings import Checks
from phasegate.engine.base_check import Base, BaseReport, CheckedRow, Hear, rows_of_report, whole_base
from phasegate.engine.project import Project
from phasegate.engine.round_trip import ask_in
from phasegate.engine.staffing import member_for
from phasegate.errors import StateConflict
from phasegate.files.durable import replace_file
from phasegate.prompts.agent_files import shipped_files
from phasegate.prompts.shipped_words import instructions
from phasegate.record.store import Store
from phasegate.rules.own_folders import CONFIG_FILE
from phasegate.typed import read_value

PURPOSES = ("setup", "build", "test", "lint", "typecheck")
ROLES = ("discover-orchestrator.md", "test-evaluator.md")
LONGEST_COMMAND = 2_000
_BLOCK = re.compile(r"^```toml\n(.*?)^```\s*$", re.M | re.S)


class Discovery(NamedTuple):
    """What was proposed, what our run of it said, and what `phasegate.toml` would be."""

    agent: str
    job: str
    proposed: dict[str, str]
    kept: dict[str, str]
    checks: tuple[CheckedRow, ...]
    diff: str
    before: str
    after: str


def discover(project: Project, store: Store, commit: str, agent: str | None, hear: Hear) -> Discovery:
    """Ask an agent, run what it proposes on a clean checkout of a commit of the person's, and keep what holds."""
    known = whole_base(project, commit).reports(hear)[0]
    member = member_for(project, "review", "", agent)
    text = instructions("discover", {"ROLES": _roles(), "KNOWN": _told(known)})
    job, answer = ask_in(project, store, member, commit, text)
    proposed = read_proposal(answer)
    name = known.profile or "project"
    tried = read_value({**proposed, **({} if known.profile else {"root": ""})}, Checks)
    rows = rows_of_report(_tried(project, commit, name, tried, hear))
    passed = {row.name for row in rows if row.outcome == "passed"}
    is_set_up = not any(row.name == "setup" and row.is_failed for row in rows)
    kept = {purpose: line for purpose, line in proposed.items() if purpose in passed and is_set_up}
    path = project.root / CONFIG_FILE
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    after = with_commands(before, name, kept, is_root=not known.profile) if kept else before
    lines = unified_diff(before.splitlines(True), after.splitlines(True), CONFIG_FILE, CONFIG_FILE)
    return Discovery(member.name, job, proposed, kept, rows, "".join(lines), before, after)


def discover_branch(project: Project, store: Store, branch: str, agent: str | None, hear: Hear) -> Discovery:
    """As `discover`, for the head of a branch."""
    return discover(project, store, project.refs.fetch(branch)[branch], agent, hear)


def write_discovery(project: Project, found: Discovery) -> None:
    """Write the settings that were shown; not over a file that was changed meanwhile."""
    path = project.root / CONFIG_FILE
    if (path.read_text(encoding="utf-8") if path.exists() else "") != found.before:
        raise StateConflict(f"{CONFIG_FILE} was changed meanwhile", "run discover again")
    replace_file(path, found.after.encode(), 0o644)


def _tried(project: Project, commit: str, name: str, checks: Checks, hear: Hear) -> BaseReport:
    """Run a proposal. The commands are an agent's: no credential of the person's is lent, and no cache is filled."""
    config = msgspec.structs.replace(project.config, checks={**project.config.checks, name: checks})
    base: Base = whole_base(project._replace(config=config), commit)
    base.origin, base.keeps = None, False
    return base.reports(hear, anew=True)[0]


def read_proposal(answer: str) -> dict[str, str]:
    """The commands of the last TOML block of an answer. Anything else in it, or none at all, is refused."""
    blocks = _BLOCK.findall(answer.replace("\r\n", "\n"))
    try:
        found = tomllib.loads(blocks[-1]) if blocks else {}
    except tomllib.TOMLDecodeError as error:
        raise StateConflict(
            f"the agent's proposal is no TOML: {error}", "run discover again, or with another agent"
        ) from error
    lines = {name: line.strip() for name, line in found.items() if isinstance(line, str)}
    wrong = [name for name in found if name not in PURPOSES or not _is_line(lines.get(name, ""))]
    if wrong or not found:
        what = f"{', '.join(wrong)} cannot be used" if wrong else "there is none"
        raise StateConflict(f"the agent's proposal: {what}", "run discover again, or with another agent")
    return {purpose: lines[purpose] for purpose in PURPOSES if purpose in lines}


def _is_line(text: str) -> bool:
    return bool(text) and len(text) <= LONGEST_COMMAND and text.isprintable()


def with_commands(text: str, name: str, commands: dict[str, str], *, is_root: bool) -> str:
    """A configuration with these commands in one table of checks; other lines stay as they are."""
    new = [*(['root = ""\n'] if is_root else []), *(f"{key} = {_quoted(line)}\n" for key, line in commands.items())]
    keys = ("root", *commands) if is_root else tuple(commands)
    lines, header = text.splitlines(True), f"[checks.{name}]"
    at = next((number for number, line in enumerate(lines) if line.split("#")[0].strip() == header), None)
    if at is None:
        gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
        return f"{text}{gap}{header}\n{''.join(new)}"
    end = next((n for n in range(at + 1, len(lines)) if lines[n].lstrip().startswith("[")), len(lines))
    kept = [line for line in lines[at + 1 : end] if line.split("=")[0].strip() not in keys]
    return "".join([*lines[: at + 1], *new, *kept, *lines[end:]])


def _quoted(line: str) -> str:
    return '"' + line.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _roles() -> str:
    return "\n\n".join(file.text for file in shipped_files() if file.name in ROLES)


def _told(report: BaseReport) -> str:
    rows = rows_of_report(report)
    lines = [
        f"- {row.name}: {row.outcome} - {row.summary}" + (f" ({row.command})" if row.command else "") for row in rows
    ]
    return "\n".join([*lines, *(f"    {line}" for row in rows if row.is_failed for line in row.output)])
