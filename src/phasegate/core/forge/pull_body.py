"""Render the text of a pull request: for reviewers first, the evidence folded at the end.

Text of agents and users is escaped: it mentions no account, closes no issue and has no markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from phasegate.core.forge.outgoing_text import escape_for_forge, quote_untrusted
from phasegate.core.forge.pull_decision import MARKER_PREFIX

# GitHub accepts 65 536 characters
MAX_BODY_CHARS = 60_000
NO_TEST = "no test"
# Begins our part of a body; the marker of the pull request ends it
_BODY_START = f"{MARKER_PREFIX}begin -->"
_MAX_ROWS = 100
_MAX_FIRST_FILES = 3


class PullFile(msgspec.Struct, frozen=True):
    """A changed file, and the package whose scope it is in; "" if it is in none."""

    path: str
    added: int
    deleted: int
    package: str = ""
    is_test: bool = False

    @property
    def size(self) -> int:
        return self.added + self.deleted


class PullFinding(msgspec.Struct, frozen=True):
    """What a reviewing agent found in a package."""

    package: str
    verdict: str
    finding: str
    # A later review of the package passed
    is_settled: bool


class PullBodyParts(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of the body of a pull request."""

    # Hidden line that identifies our pull request
    marker: str
    description: str
    # What was done and why, in paragraphs
    summary: str = ""
    # Reference to an issue
    issue: str = ""
    # Path of the specification in the repository
    specification: str = ""
    changes: Sequence[PullFile] = ()
    # Columns: requirement, packages, commits, tests
    requirements: Sequence[tuple[str, str, str, str]] = ()
    # Columns: command, result before, result now
    commands: Sequence[tuple[str, str, str]] = ()
    findings: Sequence[PullFinding] = ()
    # What a reviewer should know, one line each
    risks: Sequence[str] = ()
    # Columns: gate, outcome, phase
    gates: Sequence[tuple[str, str, str]] = ()
    # Columns: package, title, commit
    packages: Sequence[tuple[str, str, str]] = ()
    cost: str = ""
    chain: str = ""


def render_pull_body(parts: PullBodyParts) -> str:
    """Render the body of a pull request, which ends with its marker."""
    sections = [
        f"## Summary\n\n{_escape_paragraphs(parts.summary)}" if parts.summary else "",
        "## What was asked\n\n" + quote_untrusted(parts.description),
        f"Refers to {parts.issue}." if parts.issue else "",
        _render_first_look(parts),
        _render_changes(parts.changes),
        _render_table(
            "Requirements",
            ("requirement", "packages", "commits", "tests"),
            [(*row[:3], row[3] or NO_TEST) for row in parts.requirements],
        ),
        _render_table("Commands", ("command", "before", "now"), parts.commands),
        _render_findings(parts.findings),
        f"Specification: `{_render_cell(parts.specification)}`" if parts.specification else "",
        _render_evidence(parts),
    ]

    text = "\n\n".join(section for section in sections if section)
    max_chars = MAX_BODY_CHARS - len(parts.marker) - len(_BODY_START) - 20
    if len(text) > max_chars:
        text = f"{text[:max_chars]}\n\n(cut)"

    return f"{_BODY_START}\n{text}\n\n{parts.marker}\n"


def replace_own_part(body: str, own: str, marker: str) -> str:
    """Replace our part of a body, and keep what people wrote before and after it.

    A body without our marker belongs to people.
    """
    body = body.replace("\r\n", "\n")
    end = body.find(marker)
    if end < 0:
        return body

    start = max(body.find(_BODY_START, 0, end), 0)
    return body[:start] + own.rstrip("\n") + body[end + len(marker) :]


def _render_first_look(parts: PullBodyParts) -> str:
    """Name the largest changes of code, and the risks."""
    code = [change for change in parts.changes if not change.is_test and change.size]
    largest = sorted(code, key=lambda change: -change.size)[:_MAX_FIRST_FILES]
    lines = [
        f"- {escape_for_forge(change.path)} (+{change.added} -{change.deleted})"
        for change in largest
    ]
    lines += [f"- {escape_for_forge(risk)}" for risk in parts.risks]
    if not lines:
        return ""
    return "\n".join(["## Where to look first", "", *lines])


def _render_changes(changes: Sequence[PullFile]) -> str:
    """Render the number of files and lines that each package changed."""
    by_package: dict[str, list[PullFile]] = {}
    for change in changes:
        by_package.setdefault(change.package or "other", []).append(change)

    rows = [
        (
            package,
            str(len(files)),
            f"+{sum(file.added for file in files)} -{sum(file.deleted for file in files)}",
            ", ".join(file.path for file in files),
        )
        for package, files in sorted(by_package.items())
    ]
    return _render_table("Changes", ("package", "files", "lines", "paths"), rows)


def _render_findings(findings: Sequence[PullFinding]) -> str:
    rows = [
        (
            finding.package,
            finding.finding,
            "fixed: a later review passed" if finding.is_settled else "open",
        )
        for finding in findings
    ]
    return _render_table("Findings of the AI review", ("package", "finding", "outcome"), rows)


def _render_evidence(parts: PullBodyParts) -> str:
    sections = [
        _render_table("Work packages", ("package", "title", "commit"), parts.packages),
        _render_table("Gates", ("gate", "outcome", "phase"), parts.gates),
        f"Cost: {parts.cost}." if parts.cost else "",
        f"Audit chain: `{parts.chain}` (`phasegate audit verify`)." if parts.chain else "",
    ]
    shown = "\n\n".join(section for section in sections if section)
    if not shown:
        return ""
    return f"<details><summary>Evidence of Phasegate</summary>\n\n{shown}\n\n</details>"


def _escape_paragraphs(text: str) -> str:
    return "\n".join(escape_for_forge(line) for line in text.strip().splitlines())


def _render_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    every = list(rows)
    lines = [f"| {' | '.join(_render_cell(field) for field in row)} |" for row in every[:_MAX_ROWS]]
    if not lines:
        return ""

    table = [f"## {title}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines]
    if len(every) > _MAX_ROWS:
        table += ["", f"and {len(every) - _MAX_ROWS} more"]
    return "\n".join(table)


def _render_cell(text: str) -> str:
    return escape_for_forge(" ".join(text.split()))[:300]
