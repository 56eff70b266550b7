"""Measure how many of the changed lines a test run covered, from its coverage report.

Supported are the reports that name lines: coverage.py JSON, lcov, Cobertura XML and Go profiles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.checks.coverage_report import is_same_file, read_report
from phasegate.checks.excerpt import format_names
from phasegate.typed import read_json

_HUNK = re.compile(r"@@ -[0-9,]+ \+([0-9]+)")
_CLASS = re.compile(rb'<class\b[^>]*\bfilename="([^"]{1,4096})"|<line\b([^>]*)>')
_ATTRIBUTE = re.compile(rb'\b(number|hits)="([0-9]{1,15})"')
_LCOV = re.compile(rb"^(?:SF:(.{1,4096})|DA:([0-9]{1,9}),([0-9]{1,15}))", re.M)
_GO_BLOCK = re.compile(
    rb"^(\S{1,4096}):([0-9]{1,9})\.[0-9]+,([0-9]{1,9})\.[0-9]+ [0-9]+ ([0-9]{1,15})$", re.M
)
_MAX_BLOCK_LINES = 10_000


class _Line(NamedTuple):
    file: str
    number: int
    is_covered: bool


class _FileLines(msgspec.Struct):
    executed_lines: tuple[int, ...] = ()
    missing_lines: tuple[int, ...] = ()


class _CoveragePyReport(msgspec.Struct):
    files: dict[str, _FileLines] = {}


def describe_changed_coverage(report: Path, diff: str) -> str:
    """Return how many of the added lines of a diff a report counts as covered, or "" for none.

    Raise ValueError if the report cannot be read.
    """
    added = find_added_lines(diff)
    # Reports may count a line several times
    hits: dict[str, bool] = {}
    for line in _read_lines(read_report(report)):
        path = next((path for path in added if is_same_file(path, line.file)), "")
        if line.number in added.get(path, ()):
            name = f"{path}:{line.number}"
            hits[name] = hits.get(name, False) or line.is_covered

    if not hits:
        return ""

    missed = [name for name, is_covered in hits.items() if not is_covered]
    text = f"{len(hits) - len(missed)} of {len(hits)} changed lines are covered"
    if missed:
        text += f"; not covered: {format_names(missed)}"
    return text


def find_added_lines(diff: str) -> Mapping[str, set[int]]:
    """Return the numbers of the lines that a diff adds, by path."""
    added: dict[str, set[int]] = {}
    path = ""
    number = 0

    for line in diff.split("\n"):
        if line.startswith("+++ b/"):
            path = line.removeprefix("+++ b/").rstrip("\t")
        elif hunk := _HUNK.match(line):
            number = int(hunk[1])
        elif line.startswith("+") and path:
            added.setdefault(path, set()).add(number)
            number += 1
        elif line.startswith(" "):
            number += 1
        elif line.startswith("diff "):
            path = ""

    return added


def _read_lines(data: bytes) -> Iterator[_Line]:
    """Yield the covered and missed lines of a coverage report in any known format."""
    start = data[:1_000].lstrip()
    if start.startswith(b"{"):
        for name, lines in read_json(data, _CoveragePyReport).files.items():
            yield from (_Line(name, number, True) for number in lines.executed_lines)
            yield from (_Line(name, number, False) for number in lines.missing_lines)
        return

    file = ""
    if start.startswith(b"<"):
        for match in _CLASS.finditer(data):
            if match[1]:
                file = match[1].decode(errors="replace")
            else:
                values = dict(_ATTRIBUTE.findall(match[2]))
                yield _Line(file, int(values.get(b"number", 0)), int(values.get(b"hits", 0)) > 0)
        return

    for match in _GO_BLOCK.finditer(data):
        first = int(match[2])
        for number in range(first, min(int(match[3]), first + _MAX_BLOCK_LINES) + 1):
            yield _Line(match[1].decode(errors="replace"), number, int(match[4]) > 0)

    for match in _LCOV.finditer(data):
        if match[1]:
            file = match[1].decode(errors="replace").strip()
        else:
            yield _Line(file, int(match[2]), int(match[3]) > 0)
