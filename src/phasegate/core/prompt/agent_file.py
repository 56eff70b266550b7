"""Insert the prompt section into the text of an agent file.

Inserting twice gives the same bytes as inserting once.

Of Markdown it parses level-1 headings at the margin, and the code fences and comments that hide
them; a fence that opens in a list must be closed too. Lists, tables and other blocks matter only at
the end of a file: none of them is a closing paragraph.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from phasegate.errors import ConfigError

PROMPTS_TITLE = "SUGGESTED PROMPTS"
PROTOCOL_TITLE = "PROMPT EMISSION PROTOCOL"
GOVERNANCE_TITLE = "CONSTITUTIONAL GOVERNANCE"
PROGRESS_TITLE = "PROGRESS TRACKING (TASK LIST)"
SELF_VALIDATION_TITLE = "SELF-VALIDATION"
OWN_TITLES = (PROMPTS_TITLE, PROTOCOL_TITLE)
_BYTE_ORDER_MARK = "\ufeff"
# Number of last lines by which an older version of our section is recognized
_COMPARED_ENDING_LINES = 3

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_TITLE = re.compile(r"#(?:[ \t]+(.*))?$")
_LIST_MARKS = r"[ \t]*(?:(?:[-+*]|\d{1,9}[.)])[ \t]+)*"
_FENCE = re.compile(rf"{_LIST_MARKS}(?:(`{{3,}})[^`]*|(~{{3,}}).*)$")
_UNDERLINE = re.compile(r"=+[ \t]*$")
_HEADING_OR_RULE = re.compile(
    r"#{1,6}(?:[ \t]|$)|=+[ \t]*$|(?:\*[ \t]*){3,}$|(?:-[ \t]*){3,}$|(?:_[ \t]*){3,}$"
)
_NOT_A_PARAGRAPH = re.compile(
    r"[ \t]|[-+*](?:[ \t]|$)|\d{1,9}[.)](?:[ \t]|$)|\[\d+\]|[|:\- \t]*$|\|"
)


class PromptSection(NamedTuple):
    """One of Phasegate's sections: title, and text from the heading to the last line, with LF."""

    title: str
    text: str


class AgentFile(NamedTuple):
    """An agent file, split into its author's lines and Phasegate's sections."""

    text: str
    byte_order_mark: str
    # Including line endings
    lines: tuple[str, ...]
    sections: tuple[PromptSection, ...]


def split_lines(text: str) -> list[str]:
    """Split a text into lines with their endings; only LF, CRLF and CR end a line."""
    return _LINE.findall(text)


def read_agent_file(text: str, expected_section: PromptSection | None = None) -> AgentFile:
    """Split an agent file into its author's lines and Phasegate's sections.

    Raise ConfigError for a file that ends inside a code fence or a comment: it has no place for a
    section.

    With `expected_section`, the end of that section is distinguished from text that the author
    wrote below it.
    """
    if text.startswith(_BYTE_ORDER_MARK):
        mark = _BYTE_ORDER_MARK
    else:
        mark = ""

    lines = split_lines(text[len(mark) :])
    outline = Outline(lines)
    kept: list[str] = []
    sections: list[PromptSection] = []
    position = 0

    for start, title in outline.titles.items():
        if title not in OWN_TITLES:
            continue

        _append_after_blank_line(kept, lines[position:start])
        position = outline.find_section_end(start)
        if expected_section is not None and expected_section.title == title:
            position = start + _count_own_lines(lines[start:position], expected_section.text)

        sections.append(
            PromptSection(
                title,
                "".join(
                    f"{_strip_line_end(line)}\n"
                    for line in _drop_trailing_blank_lines(lines[start:position])
                ),
            )
        )

    _append_after_blank_line(kept, lines[position:])
    if _count_front_matter_lines(kept) != _count_front_matter_lines(lines):
        raise ConfigError(
            "a `---` line below the prompt section would be parsed as front matter",
            "write it as ***, or add a heading above it",
        )

    return AgentFile(text, mark, tuple(kept), tuple(sections))


def extract_front_matter(file: AgentFile) -> list[str]:
    """Return the lines of the front matter without delimiters; empty if there is none."""
    length = _count_front_matter_lines(file.lines)
    return [_strip_line_end(line) for line in file.lines[1 : max(length - 1, 1)]]


def looks_like_orchestrator(file: AgentFile) -> bool:
    """Return True if a file that declares no role has the orchestrator's sections."""
    titles = set(Outline(file.lines).titles.values())
    return {GOVERNANCE_TITLE, PROGRESS_TITLE} <= titles or any(
        section.title == PROTOCOL_TITLE for section in file.sections
    )


def insert_section(file: AgentFile, section: PromptSection) -> str:
    """Return the file with this section as its only Phasegate section, in its place."""
    at = _find_insertion_line(Outline(file.lines), section.title)
    head = _drop_trailing_blank_lines(file.lines[:at])
    tail = _drop_leading_blank_lines(file.lines[at:])
    # The line ending of the first non-blank line: blank lines may belong to a section.
    ending = next(
        (
            line[len(_strip_line_end(line)) :]
            for line in file.lines
            if line.strip() and line != _strip_line_end(line)
        ),
        "\n",
    )

    body = section.text.replace("\n", ending)
    if tail:
        body += ending

    if head:
        # The last line may have no ending, or another one, which would merge with the blank line
        # after it.
        head[-1] = f"{_strip_line_end(head[-1])}{ending}{ending}"

    return "".join([file.byte_order_mark, *head, body, *tail])


def find_section_problems(file: AgentFile, section: PromptSection) -> list[str]:
    """Return the problems of a prompt section, one phrase each.

    A section can be missing, stale, misplaced, repeated or foreign.
    """
    if insert_section(file, section) == file.text:
        return []

    current = [other for other in file.sections if other.title == section.title]
    phrases = [
        f"foreign: # {other.title}" for other in file.sections if other.title != section.title
    ]
    if not current:
        return [*phrases, f"missing: # {section.title}"]
    if len(current) > 1:
        return [*phrases, f"repeated: # {section.title}"]
    if current[0].text != section.text:
        return [*phrases, f"stale: # {section.title}"]

    return phrases or [f"misplaced: # {section.title}"]


class Outline:
    """Level-1 headings of a file by line, and the start of its closing paragraph."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = [_strip_line_end(line) for line in lines]
        self._hidden = _find_hidden_lines(self._lines, _count_front_matter_lines(lines))
        headings = (self._parse_heading_ending_at(n) for n in range(len(lines)))
        self.titles = dict(heading for heading in headings if heading is not None)
        self._starts = list(self.titles)
        self.closing_line = self._find_closing_line()

    def __len__(self) -> int:
        return len(self._lines)

    def find_title(self, title: str) -> int | None:
        return next((n for n, found in self.titles.items() if found == title), None)

    def find_section_end(self, start: int) -> int:
        """Return the line at which the section that begins at `start` ends.

        That is the next level-1 heading, the closing paragraph or the end of the file.
        """
        following = bisect_right(self._starts, start)
        if following < len(self._starts):
            heading = self._starts[following]
        else:
            heading = len(self)

        if self.closing_line is None or self.closing_line < start:
            return heading

        return min(heading, self.closing_line)

    def _parse_heading_ending_at(self, n: int) -> tuple[int, str] | None:
        """Return start and title of a heading: `# TITLE`, or a paragraph above a line of `===`."""
        if n in self._hidden:
            return None
        if match := _TITLE.match(self._lines[n]):
            return n, (match[1] or "").strip(" \t")
        if not _UNDERLINE.match(self._lines[n]):
            return None

        start = self._find_paragraph_start(n)
        if start == n:
            return None

        return start, " ".join(line.strip(" \t") for line in self._lines[start:n])

    def _find_paragraph_start(self, end: int) -> int:
        """Return the first line of the paragraph whose last line is above `end`.

        Return `end` itself if there is none.
        """
        start = end
        while start and self._is_paragraph_line(start - 1):
            start -= 1

        if start and start - 1 not in self._hidden:
            above = self._lines[start - 1]
        else:
            above = ""

        # A line of a list, a table or a menu continues with the line right below it.
        if not above.strip() or _HEADING_OR_RULE.match(above):
            return start

        return end

    def _is_paragraph_line(self, n: int) -> bool:
        line = self._lines[n]
        return bool(
            line.strip(" \t")
            and n not in self._hidden
            and not _HEADING_OR_RULE.match(line)
            and not _NOT_A_PARAGRAPH.match(line)
        )

    def _find_closing_line(self) -> int | None:
        """Return the first line of the paragraph that ends the file, or None if it ends otherwise.

        The only paragraph below `# SELF-VALIDATION` is the text of that section, not a closing
        paragraph.
        """
        end = len(_drop_trailing_blank_lines(self._lines))
        start = self._find_paragraph_start(end)
        above = len(_drop_trailing_blank_lines(self._lines[:start]))
        if above and _UNDERLINE.match(self._lines[above - 1]):
            above -= 1
        if start == end or self.titles.get(above - 1) == SELF_VALIDATION_TITLE:
            return None

        return start


def _find_insertion_line(outline: Outline, title: str) -> int:
    """Return the line before which to insert a section, in a file without Phasegate's sections."""
    if title == PROTOCOL_TITLE:
        governance = outline.find_title(GOVERNANCE_TITLE)
        progress = outline.find_title(PROGRESS_TITLE)
        if governance is not None:
            return outline.find_section_end(governance)
        if progress is not None:
            return progress

    if outline.closing_line is None:
        return len(outline)

    validation = outline.find_title(SELF_VALIDATION_TITLE)
    if validation is None:
        return outline.closing_line

    return outline.find_section_end(validation)


def _find_hidden_lines(lines: Sequence[str], front_matter_length: int) -> set[int]:
    """Return the lines of front matter, code fences and comments; raise if one is never closed."""
    hidden = set(range(front_matter_length))
    opened = 0
    closes = None

    for n in range(front_matter_length, len(lines)):
        fence = None if closes else _FENCE.match(lines[n])
        if fence:
            run = fence[1] or fence[2]
            opened = n
            closes = re.compile(rf"[ \t]*{run[0]}{{{len(run)},}}[ \t]*$")
        elif not closes and lines[n].lstrip(" ").startswith("<!--"):
            opened = n
            closes = re.compile(r".*-->")

        if closes:
            hidden.add(n)
            if opened == n:
                rest = lines[n].partition("<!--")[2]
            else:
                rest = lines[n]

            closes = None if closes.match(rest) else closes

    if closes:
        raise ConfigError(
            f"the code fence or comment that opens in line {opened + 1} is never closed",
            "close it; a section inserted after it would be a part of it",
        )

    return hidden


def _count_front_matter_lines(lines: Sequence[str]) -> int:
    """Count the lines of the front matter, delimiters included.

    One of our headings is never inside it: otherwise the delimiters that our sections quote could
    appear to close it.
    """
    if not lines or lines[0].rstrip() != "---":
        return 0

    for number, line in enumerate(lines[1:], 2):
        title = _TITLE.match(_strip_line_end(line))
        if title and (title[1] or "").strip(" \t") in OWN_TITLES:
            return 0
        if line.rstrip() in ("---", "..."):
            return number

    return 0


def _count_own_lines(lines: Sequence[str], expected_text: str) -> int:
    """Count the lines of a range that belong to our section.

    These are all lines, unless some line ends in the same way as the expected text.
    """
    expected = expected_text.rstrip("\n").split("\n")
    texts = [_strip_line_end(line) for line in lines]
    ending = expected[-_COMPARED_ENDING_LINES:]
    ends = (n for n in range(len(ending), len(texts) + 1) if texts[n - len(ending) : n] == ending)
    if texts[: len(expected)] == expected:
        end = len(expected)
    else:
        end = next(ends, len(lines))

    return len(lines) - len(_drop_leading_blank_lines(lines[end:]))


def _append_after_blank_line(before: list[str], after: Sequence[str]) -> None:
    """Append the part after a removed section, separated by a blank line."""
    if before and after and before[-1].strip():
        before.append(before[-1][len(_strip_line_end(before[-1])) :])
    before.extend(after)


def _strip_line_end(line: str) -> str:
    return line.rstrip("\r\n")


def _drop_trailing_blank_lines(lines: Sequence[str]) -> list[str]:
    """Return the lines without blank ones at the end."""
    end = len(lines)
    while end and not lines[end - 1].strip(" \t\r\n"):
        end -= 1
    return list(lines[:end])


def _drop_leading_blank_lines(lines: Sequence[str]) -> list[str]:
    start = next((n for n, line in enumerate(lines) if line.strip(" \t\r\n")), len(lines))
    return list(lines[start:])
