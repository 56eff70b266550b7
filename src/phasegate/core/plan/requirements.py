"""Read the requirements of a specification from spec-kitty's annotations.

Annotated ids are the authoritative ones.

    <!-- spec-kitty: validated -->
    <!-- spec-kitty: fr-count: 2 -->
    <!-- spec-kitty: fr-coverage: 100% -->
    <!-- sk:fr id="FR-AUTH-001" priority="high" -->
    - Users can register with email and password
    <!-- /sk:fr -->

`agileplus:` is read like `spec-kitty:`. An annotation is a comment alone on its line. In code
fences, other comments and `code` it is plain text.
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from phasegate.core.plan.work_package import is_requirement_id
from phasegate.core.text.finding import Finding, quote_text
from phasegate.core.text.markdown_lines import (
    collapse_whitespace,
    iter_markdown_lines,
    remove_code_spans,
)


class Priority(StrEnum):
    """Priority of a requirement."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Requirement(msgspec.Struct, frozen=True):
    """One requirement; `priority` is None if it was not given."""

    id: str
    text: str
    line: int
    priority: Priority | None = None
    annotated: bool = True


class Spec(msgspec.Struct, frozen=True):
    """The requirements of a specification, and all findings about their annotations."""

    requirements: tuple[Requirement, ...]
    findings: tuple[Finding, ...]

    @property
    def annotated(self) -> bool:
        """Whether the ids come from annotations instead of headings and lists."""
        return any(requirement.annotated for requirement in self.requirements)


_HEADERS = ("spec-kitty:", "agileplus:")
# The last four describe a change of a current requirement, see `core/specs/deltas.py`
_ATTRIBUTES = frozenset(("id", "priority", "change", "from", "capability", "was"))
_OPEN = re.compile(r'sk:fr((?:\s+[\w-]+="[^"]*")*)')
_ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')
_COVERAGE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,4})?)%")
_ID = r"((?:FR|NFR|C)(?:-[A-Z0-9]{1,24}){0,6}-[0-9]{1,6})(?![\w-])"
_SCENARIO = re.compile(r"\s*#{1,6}\s+(?:[A-Za-z]+ )?Scenario\b")
_ANY_ID = re.compile(r"(?<![\w-])[A-Z]{1,12}(?:-[A-Z0-9]{1,24}){0,6}-[0-9]{1,6}(?![\w-])")
_LISTED_ID = re.compile(
    rf"\s*(?:#{{1,6}}|[-*+]|[0-9]{{1,9}}[.)]|\|)\s+(?:\[[ xX]\]\s+)?[*_`]{{0,3}}{_ID}[*_`:|]*(.*)"
)
_BULLET = re.compile(r"\s*(?:[-*+]|[0-9]{1,9}[.)])\s+(.*)")


def read_spec(text: str, first_line: int = 1) -> Spec:
    """Read a specification in one pass."""
    reader = _AnnotationReader()
    for line in iter_markdown_lines(text, first_line):
        if line.fence_info is None:
            reader.read_line(line.number, line.text)
    return reader.finish()


def _parse_comment(line: str) -> str | None:
    """Return the text of a comment that is alone on its line and not indented as code."""
    text = line.strip()
    if not (text.startswith("<!--") and text.find("-->") == len(text) - 3 > 3):
        return None

    indent = len(line) - len(line.lstrip())
    if indent < 4 and "\t" not in line[:indent]:
        return text[4:-3].strip()

    return None


class _AnnotationReader:
    """Collects requirements and findings line by line."""

    def __init__(self) -> None:
        self._annotated: dict[str, Requirement] = {}
        self._listed: dict[str, Requirement] = {}
        self._open: Requirement | None = None
        self._text: list[str] = []
        self._header: dict[str, tuple[int, str]] = {}
        self._blocks = 0
        self._with_scenario: set[str] = set()
        self._findings: list[Finding] = []

    def read_line(self, number: int, line: str) -> None:
        """Read one line: an annotation, a header or prose."""
        if "<!--" in line:
            words = _parse_comment(line)
        else:
            words = None

        if words is None:
            self._read_prose(number, line)
        elif words.startswith(_HEADERS):
            self._read_header(number, words.partition(":")[2].strip())
        elif words == "/sk:fr":
            self._close_block(number)
        elif words.startswith(("sk:", "/sk:")):
            self._open_block(number, words)

    def _add_finding(self, line: int, code: str, message: str) -> None:
        self._findings.append(Finding(line, code, message))

    def _read_prose(self, number: int, line: str) -> None:
        """Collect requirement text and scenarios from a line of prose."""
        if "<!--" in line and re.search(
            r"<!--\s*(/?sk:|spec-kitty:|agileplus:)", remove_code_spans(line)
        ):
            self._add_finding(
                number,
                "stray-annotation",
                "this annotation is not alone on its line, so it is ignored",
            )

        if _SCENARIO.match(line):
            self._with_scenario.update(_ANY_ID.findall(line), [self._open.id] if self._open else [])

        found = _LISTED_ID.match(line)
        if self._open is not None:
            self._text.append(_strip_id(line))
            if found and found[1] != self._open.id:
                self._add_finding(
                    number,
                    "wrong-id",
                    f"{found[1]} is named inside the annotation of {self._open.id}",
                )
        elif found and found[1] not in self._listed:
            self._listed[found[1]] = Requirement(
                id=found[1],
                text=collapse_whitespace(found[2]).rstrip(" |"),
                line=number,
                annotated=False,
            )

    def _read_header(self, number: int, words: str) -> None:
        """Store a header annotation such as `fr-count`."""
        key, _, value = words.partition(":")
        if key not in ("validated", "fr-count", "fr-coverage"):
            self._add_finding(
                number,
                "unknown-annotation",
                f"{quote_text(words)} is not validated, fr-count or fr-coverage",
            )
        elif key in self._header:
            self._add_finding(
                number,
                "duplicate-annotation",
                f"{key} appears twice, first in line {self._header[key][0]}",
            )
        else:
            self._header[key] = (number, value.strip())

    def _open_block(self, number: int, words: str) -> None:
        """Start a requirement at its opening annotation."""
        if self._open is not None:
            self._add_finding(
                number,
                "nested-annotation",
                f"{self._open.id} of line {self._open.line} is still open here",
            )
            self._store_block()

        found = _OPEN.fullmatch(words)
        if found:
            pairs = _ATTRIBUTE.findall(found[1])
        else:
            pairs = []

        given = dict(pairs)
        if "id" not in given or len(given) != len(pairs) or given.keys() - _ATTRIBUTES:
            self._add_finding(
                number,
                "bad-annotation",
                f'{quote_text(words)} is not of the form sk:fr id="FR-AUTH-001" priority="high"',
            )

        if found:
            self._blocks += 1
            self._open = Requirement(
                id=given.get("id", ""),
                text="",
                line=number,
                priority=self._parse_priority(number, given.get("priority")),
            )

    def _parse_priority(self, number: int, text: str | None) -> Priority | None:
        if text is None:
            return None
        if text in tuple(Priority):
            return Priority(text)

        self._add_finding(
            number, "unknown-priority", f"{quote_text(text)} is not one of {', '.join(Priority)}"
        )
        return None

    def _close_block(self, number: int) -> None:
        if self._open is None:
            self._add_finding(number, "stray-annotation", "this closes no requirement")
        else:
            self._store_block()

    def _store_block(self) -> None:
        """Store the open requirement and close it."""
        assert self._open is not None
        requirement = msgspec.structs.replace(
            self._open, text=collapse_whitespace(" ".join(self._text))
        )
        self._open = None
        self._text = []

        if not is_requirement_id(requirement.id):
            self._add_finding(
                requirement.line,
                "bad-id",
                f"{quote_text(requirement.id)} is not an id such as FR-AUTH-001",
            )
        elif requirement.id in self._annotated:
            first = self._annotated[requirement.id].line
            self._add_finding(
                requirement.line,
                "duplicate-id",
                f"{requirement.id} appears twice, first in line {first}",
            )
        else:
            self._annotated[requirement.id] = requirement
            if not requirement.text:
                self._add_finding(
                    requirement.line, "empty-requirement", f"{requirement.id} has no text"
                )

    def finish(self) -> Spec:
        """Check the header against the blocks, and return the specification."""
        if self._open is not None:
            self._add_finding(
                self._open.line,
                "unclosed-annotation",
                f"{quote_text(self._open.id)} is never closed",
            )
            self._store_block()

        self._check_count()
        self._check_coverage()

        requirements = self._listed
        if self._blocks or self._header:
            requirements = self._annotated
            for listed in self._listed.values():
                if listed.id not in self._annotated:
                    self._add_finding(
                        listed.line,
                        "unannotated-id",
                        f"{listed.id} is not annotated, so it is ignored",
                    )

        return Spec(tuple(requirements.values()), tuple(sorted(self._findings)))

    def _check_count(self) -> None:
        """Compare `fr-count` with the number of annotated requirements."""
        line, text = self._header.get("fr-count", (0, ""))
        if not line:
            if "validated" in self._header and not self._blocks:
                self._add_finding(
                    self._header["validated"][0],
                    "false-count",
                    "validated, but no requirement is annotated",
                )
        elif not (text.isascii() and text.isdigit() and len(text) < 7):
            self._add_finding(
                line, "bad-annotation", f"fr-count must be a number, not {quote_text(text)}"
            )
        elif int(text) != self._blocks:
            self._add_finding(
                line,
                "false-count",
                f"fr-count is {int(text)}, but {self._blocks} requirements are annotated",
            )

    def _check_coverage(self) -> None:
        """Compare `fr-coverage` with the share of requirements with scenarios."""
        line, text = self._header.get("fr-coverage", (0, ""))
        if not line:
            return

        found = _COVERAGE.fullmatch(text)
        if not found or float(found[1]) > 100:
            self._add_finding(
                line, "bad-annotation", f"fr-coverage must be 0% to 100%, not {quote_text(text)}"
            )
            return

        if not self._with_scenario or not self._annotated:
            return

        total = len(self._annotated)
        covered = len(self._with_scenario & self._annotated.keys())
        if abs(float(found[1]) - 100 * covered / total) >= 1:
            self._add_finding(
                line,
                "false-coverage",
                f"fr-coverage is {text}, but {covered} of {total} requirements have a scenario",
            )


def _strip_id(line: str) -> str:
    """Remove the bullet and the requirement's own id from a line."""
    if found := _LISTED_ID.match(line):
        return found[2]

    bullet = _BULLET.match(line)
    if bullet:
        return bullet[1]

    return line
