"""Parse coverage reports and compute how much of the code a test run covered.

Supported: coverage.py JSON, istanbul's JSON summary, lcov, Cobertura XML, Go cover profiles. The
percentage is computed from the counts in the report. A report that counts nothing, or more
covered lines than there are, is invalid.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from xml.parsers import expat

import msgspec

from phasegate.typed import read_json

MAX_REPORT_BYTES = 64_000_000
_CHUNK_BYTES = 1 << 16


class InvalidCoverageReport(ValueError):
    """The report cannot be parsed or is implausible; the message says why."""


class CoverageCounts(NamedTuple):
    """How many lines a report counts, and how many of them were run.

    Branches are included if the report has them.
    """

    covered: int
    total: int
    # Paths as they appear in the report
    files: frozenset[str] = frozenset()

    @property
    def percent(self) -> float:
        return 100.0 * self.covered / self.total


def read_coverage(path: Path) -> CoverageCounts:
    """Parse a coverage report. Its format is detected from the content."""
    data = read_report(path)
    try:
        counted = _find_parser(data)(data)
    except (ValueError, RecursionError, expat.ExpatError) as error:
        raise InvalidCoverageReport(str(error)) from None

    if counted.total <= 0 or not 0 <= counted.covered <= counted.total:
        raise InvalidCoverageReport(
            f"it reports {counted.covered} of {counted.total} lines as covered"
        )

    return counted


def read_report(path: Path) -> bytes:
    """Read a report, which the run may have left in any state."""
    try:
        if path.is_symlink() or not path.is_file():
            raise InvalidCoverageReport("it is not a regular file")
        if path.stat().st_size > MAX_REPORT_BYTES:
            raise InvalidCoverageReport(f"it is larger than {MAX_REPORT_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        # The run may have left the file in any state
        raise InvalidCoverageReport(f"it cannot be read: {error.strerror}") from None


def find_uncounted_files(counted: CoverageCounts, paths: Iterable[str]) -> list[str]:
    """Return the files that the report omits although it lists other files of the same type."""
    kinds = {PurePosixPath(name).suffix for name in counted.files}
    asked = [path for path in paths if PurePosixPath(path).suffix in kinds]
    return [path for path in asked if not any(is_same_file(path, name) for name in counted.files)]


def is_same_file(path: str, name: str) -> bool:
    """Return True if a name in a report means this path: reports may shorten or extend it."""
    return f"/{name}".endswith(f"/{path}") or f"/{path}".endswith(f"/{name}")


def meets_threshold(counted: CoverageCounts, min_percent: float) -> bool:
    """Return True if the threshold is reached; False if it is not a number."""
    return math.isfinite(min_percent) and counted.percent >= min_percent


def _find_parser(data: bytes) -> Callable[[bytes], CoverageCounts]:
    start = data[:1_000].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"{"):
        return _parse_json
    if start.startswith(b"<"):
        return _parse_cobertura
    if start.startswith(b"mode:"):
        return _parse_go_profile

    return _parse_lcov


class _CoveragePyTotals(msgspec.Struct):
    covered_lines: int
    num_statements: int
    covered_branches: int = 0
    num_branches: int = 0


class _IstanbulLines(msgspec.Struct):
    covered: int
    total: int


class _IstanbulTotal(msgspec.Struct):
    lines: _IstanbulLines


class _JsonReport(msgspec.Struct):
    totals: _CoveragePyTotals | None = None
    files: dict[str, msgspec.Raw] = {}
    total: _IstanbulTotal | None = None


def _parse_json(data: bytes) -> CoverageCounts:
    """Count the covered lines of a coverage.py or istanbul report."""
    report = read_json(data, _JsonReport)
    if report.totals is not None:
        found = report.totals
        files = frozenset(report.files)
        return CoverageCounts(
            found.covered_lines + found.covered_branches,
            found.num_statements + found.num_branches,
            files,
        )

    if report.total is not None:
        files = frozenset(read_json(data, dict[str, msgspec.Raw])) - {"total"}
        return CoverageCounts(report.total.lines.covered, report.total.lines.total, files)

    raise InvalidCoverageReport("it is JSON, but in neither coverage.py nor istanbul format")


def _parse_lcov(data: bytes) -> CoverageCounts:
    """Count the `DA:line,hits` records; the totals (LF, LH) in the report are ignored."""
    hits = re.findall(rb"^DA:[0-9]{1,9},([0-9]{1,15})", data, re.M)
    if not hits or b"end_of_record" not in data:
        raise InvalidCoverageReport("it has no lcov records")

    files = frozenset(
        name.decode("utf-8", "replace") for name in re.findall(rb"^SF:(.{1,4096})", data, re.M)
    )
    return CoverageCounts(sum(hit.strip(b"0") != b"" for hit in hits), len(hits), files)


def _parse_go_profile(data: bytes) -> CoverageCounts:
    """Count the statements in `file:from,to statements count` lines.

    A block may appear several times, once per package that ran it.
    """
    statements: dict[bytes, int] = {}
    covered: set[bytes] = set()

    for block, number, count in re.findall(
        rb"^(\S{1,4096}) ([0-9]{1,9}) ([0-9]{1,15})$", data, re.M
    ):
        statements[block] = int(number)
        if count.strip(b"0"):
            covered.add(block)

    files = frozenset(block.rpartition(b":")[0].decode("utf-8", "replace") for block in statements)
    return CoverageCounts(
        sum(statements[block] for block in covered), sum(statements.values()), files
    )


class _CoberturaCounter:
    """Counts the `<line hits="n">` elements of classes.

    Lines of methods are skipped, because their class repeats them.
    """

    def __init__(self) -> None:
        self.covered = self.total = self._inside_methods = 0
        self.is_report = False
        self.files: set[str] = set()

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.is_report = self.is_report or name == "coverage"
        self._inside_methods += name == "methods"
        if name == "class":
            self.files.add(attributes.get("filename", ""))
        if name == "line" and not self._inside_methods:
            self.total += 1
            self.covered += attributes.get("hits", "0").strip("0") != ""

    def end(self, name: str) -> None:
        self._inside_methods -= name == "methods"


def _parse_cobertura(data: bytes) -> CoverageCounts:
    """Count the lines of a Cobertura XML report.

    The DOCTYPE that several tools write is accepted; entity declarations are refused.
    """
    lines = _CoberturaCounter()
    parser = expat.ParserCreate()
    parser.EntityDeclHandler = _reject_entities
    parser.StartElementHandler = lines.start
    parser.EndElementHandler = lines.end
    for at in range(0, len(data), _CHUNK_BYTES):
        parser.Parse(data[at : at + _CHUNK_BYTES], False)

    parser.Parse(b"", True)
    if not lines.is_report:
        raise InvalidCoverageReport("it is XML, but not a Cobertura report")

    return CoverageCounts(lines.covered, lines.total, frozenset(lines.files))


def _reject_entities(*_: object) -> None:
    raise InvalidCoverageReport("it declares entities")
