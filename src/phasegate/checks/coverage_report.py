"""How much of the code a test run went through, from the report that it left.

coverage.py JSON, istanbul's JSON summary, lcov, Cobertura XML and Go's cover profile. The percentage is computed from
the counts in the report, not taken from it. A report that counts nothing, or more covered than there is, is no report.
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

LARGEST_REPORT_BYTES = 64_000_000
_CHUNK = 1 << 16


class BadReport(ValueError):
    """Not a report that we can read or believe; the message says why."""


class Counted(NamedTuple):
    """Lines (and branches, where the report has them in its own total) and how many of them were run."""

    covered: int
    total: int
    files: frozenset[str] = frozenset()  # as the report names them

    @property
    def percent(self) -> float:
        return 100.0 * self.covered / self.total


def read_coverage(path: Path) -> Counted:
    """What the report counts, or BadReport. The form is told from the text, not from the name."""
    data = _content(path)
    try:
        counted = _reader_for(data)(data)
    except (ValueError, RecursionError, expat.ExpatError) as error:
        raise BadReport(str(error)) from None
    if counted.total <= 0 or not 0 <= counted.covered <= counted.total:
        raise BadReport(f"it counts {counted.covered} of {counted.total}")
    return counted


def _content(path: Path) -> bytes:
    try:
        if path.is_symlink() or not path.is_file():
            raise BadReport("it is not a plain file")
        if path.stat().st_size > LARGEST_REPORT_BYTES:
            raise BadReport(f"it is larger than {LARGEST_REPORT_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:  # the run may have left it in any state
        raise BadReport(f"it cannot be read: {error.strerror}") from None


def uncounted(counted: Counted, paths: Iterable[str]) -> list[str]:
    """Those of these files that the report does not mention, though it mentions others of their kind.

    Reports name files from the root, from a source folder, or by absolute path: one name may be the end of the other.
    """
    kinds = {PurePosixPath(name).suffix for name in counted.files}
    asked = [path for path in paths if PurePosixPath(path).suffix in kinds]
    return [path for path in asked if not any(_same_file(path, name) for name in counted.files)]


def _same_file(path: str, name: str) -> bool:
    return f"/{name}".endswith(f"/{path}") or f"/{path}".endswith(f"/{name}")


def reaches(counted: Counted, least_percent: float) -> bool:
    """Whether the threshold is reached; a threshold that is no number is not."""
    return math.isfinite(least_percent) and counted.percent >= least_percent


def _reader_for(data: bytes) -> Callable[[bytes], Counted]:
    start = data[:1_000].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"{"):
        return _json
    if start.startswith(b"<"):
        return _cobertura
    return _go if start.startswith(b"mode:") else _lcov


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


class _Json(msgspec.Struct):
    totals: _CoveragePyTotals | None = None
    files: dict[str, msgspec.Raw] = {}
    total: _IstanbulTotal | None = None


def _json(data: bytes) -> Counted:
    report = read_json(data, _Json)
    if report.totals is not None:
        found, files = report.totals, frozenset(report.files)
        return Counted(found.covered_lines + found.covered_branches, found.num_statements + found.num_branches, files)
    if report.total is not None:
        files = frozenset(read_json(data, dict[str, msgspec.Raw])) - {"total"}
        return Counted(report.total.lines.covered, report.total.lines.total, files)
    raise BadReport("it is JSON, but neither of coverage.py nor of istanbul")


def _lcov(data: bytes) -> Counted:
    """`DA:line,hits` records. The sums that stand beside them (LF, LH) are not asked."""
    hits = re.findall(rb"^DA:[0-9]{1,9},([0-9]{1,15})", data, re.M)
    if not hits or b"end_of_record" not in data:
        raise BadReport("it has no lcov records")
    files = frozenset(name.decode("utf-8", "replace") for name in re.findall(rb"^SF:(.{1,4096})", data, re.M))
    return Counted(sum(hit.strip(b"0") != b"" for hit in hits), len(hits), files)


def _go(data: bytes) -> Counted:
    """`file:from,to statements count` lines; a block may come several times, once a package that ran it."""
    statements: dict[bytes, int] = {}
    covered: set[bytes] = set()
    for block, number, count in re.findall(rb"^(\S{1,4096}) ([0-9]{1,9}) ([0-9]{1,15})$", data, re.M):
        statements[block] = int(number)
        if count.strip(b"0"):
            covered.add(block)
    files = frozenset(block.rpartition(b":")[0].decode("utf-8", "replace") for block in statements)
    return Counted(sum(statements[block] for block in covered), sum(statements.values()), files)


class _Lines:
    """Counts the `<line hits="n">` elements below classes; a method repeats the lines of its class."""

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


def _cobertura(data: bytes) -> Counted:
    """Cobertura XML. Several tools write its DOCTYPE, which is let be; what declares an entity is refused."""
    lines = _Lines()
    parser = expat.ParserCreate()
    parser.EntityDeclHandler = _no_entities
    parser.StartElementHandler = lines.start
    parser.EndElementHandler = lines.end
    for at in range(0, len(data), _CHUNK):
        parser.Parse(data[at : at + _CHUNK], False)
    parser.Parse(b"", True)
    if not lines.is_report:
        raise BadReport("it is XML, but not a Cobertura report")
    return Counted(lines.covered, lines.total, frozenset(lines.files))


def _no_entities(*_: object) -> None:
    raise BadReport("it declares entities")
