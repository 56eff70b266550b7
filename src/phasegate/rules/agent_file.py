"""Where the prompt section of an agent file goes (N10). Text in, text out; twice gives the same bytes as once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from phasegate.errors import ConfigError
from phasegate.rules.markdown import Line, LineKind, main_title, read_kinds, split_lines

PROMPTS = "SUGGESTED PROMPTS"
PROTOCOL = "PROMPT EMISSION PROTOCOL"
GOVERNANCE = "CONSTITUTIONAL GOVERNANCE"
PROGRESS = "PROGRESS TRACKING (TASK LIST)"
SELF_VALIDATION = "SELF-VALIDATION"
OWN_TITLES = (PROMPTS, PROTOCOL)
_BYTE_ORDER_MARK = "\ufeff"
_TELLING_LINES = 3  # the end of a block that is quoted, by which an older text of ours is known as well


class Section(NamedTuple):
    """A section of ours: its title, and its text from the heading to the last line, with LF."""

    title: str
    text: str


class AgentFile(NamedTuple):
    """An agent file taken apart: the lines that are its author's, and our sections that were among them."""

    text: str
    mark: str
    lines: tuple[Line, ...]
    sections: tuple[Section, ...]


def read_agent_file(text: str, due: Section | None = None) -> AgentFile:
    """Take an agent file apart; one that ends inside a code fence or a comment has no place for a section.

    Who knows the section that is due can tell its end from what the author wrote below it.
    """
    mark = _BYTE_ORDER_MARK if text.startswith(_BYTE_ORDER_MARK) else ""
    lines = split_lines(text[len(mark) :])
    outline = _Outline(lines)
    if outline.unclosed is not None:
        raise ConfigError(
            f"the code fence or comment that opens in line {outline.unclosed + 1} is never closed",
            "close it; a section put in behind it would be a part of it",
        )
    kept: list[Line] = []
    sections: list[Section] = []
    position = 0
    for start, end in outline.own_ranges():
        _join(kept, lines[position:start])
        title = outline.titles[start]
        position = end
        if due is not None and due.title == title:
            position = start + _own_length(lines[start:end], due.text)
        sections.append(_section(title, lines[start:position]))
    _join(kept, lines[position:])
    if _front_matter_length(kept) != _front_matter_length(lines):
        raise ConfigError(
            "a line `---` below our section would become a part of the front matter",
            "write it as ***, or put a heading of its own above it",
        )
    return AgentFile(text, mark, tuple(kept), tuple(sections))


def front_matter(file: AgentFile) -> list[str]:
    """The lines between the two delimiters at the top of the file; none: no front matter."""
    length = _front_matter_length(file.lines)
    return [line.text for line in file.lines[1 : max(length - 1, 1)]]


def looks_like_orchestrator(file: AgentFile) -> bool:
    """Whether a file that does not say what it is has the orchestrator's sections."""
    titles = set(_Outline(file.lines).titles.values())
    return {GOVERNANCE, PROGRESS} <= titles or any(section.title == PROTOCOL for section in file.sections)


def with_section(file: AgentFile, section: Section) -> str:
    """The file with this section, once and at its place, and with no other section of ours."""
    at = _place(_Outline(file.lines), section.title)
    head, tail = _without_last_blanks(file.lines[:at]), _without_first_blanks(file.lines[at:])
    ending = _line_ending(file.lines)
    body = [Line(line.text, ending) for line in split_lines(section.text)]
    if head:
        # The last line may have had no ending, or another one, which would melt into the blank line after it.
        head = [*head[:-1], Line(head[-1].text, ending), Line("", ending)]
    if tail:
        body.append(Line("", ending))
    return file.mark + "".join(line.text + line.ending for line in [*head, *body, *tail])


def findings(file: AgentFile, section: Section) -> list[str]:
    """What is wrong, one phrase each: missing, stale, misplaced, repeated, foreign; none: all is as it should be."""
    if with_section(file, section) == file.text:
        return []
    here = [found for found in file.sections if found.title == section.title]
    phrases = [f"foreign: # {found.title}" for found in file.sections if found.title != section.title]
    if not here:
        return [*phrases, f"missing: # {section.title}"]
    if len(here) > 1:
        return [*phrases, f"repeated: # {section.title}"]
    if here[0].text != section.text:
        return [*phrases, f"stale: # {section.title}"]
    return phrases or [f"misplaced: # {section.title}"]


class _Outline:
    """The headings of a file, its closing line and what lies between them."""

    def __init__(self, lines: Sequence[Line]) -> None:
        read = read_kinds(lines, _front_matter_length(lines))
        self.kinds = read.kinds
        self.unclosed = read.unclosed
        titles = (self._title_from(lines, n) for n in range(len(lines)))
        self.titles = dict(found for found in titles if found is not None)
        self._starts = list(self.titles)
        self.closing = self._closing_line()

    def first(self, title: str) -> int | None:
        return next((n for n, found in self.titles.items() if found == title), None)

    def end_of_section(self, start: int) -> int:
        """Where the section that starts here ends: at the next main heading, the closing line or the file's end."""
        following = bisect_right(self._starts, start)
        heading = self._starts[following] if following < len(self._starts) else len(self.kinds)
        return heading if self.closing is None or self.closing < start else min(heading, self.closing)

    def own_ranges(self) -> list[tuple[int, int]]:
        return [(n, self.end_of_section(n)) for n, title in self.titles.items() if title in OWN_TITLES]

    def _title_from(self, lines: Sequence[Line], n: int) -> tuple[int, str] | None:
        """Where the main heading starts that this line completes, and its title; the text above `===` is one too."""
        if self.kinds[n] is LineKind.HEADING:
            title = main_title(lines[n].text)
            return None if title is None else (n, title)
        if self.kinds[n] is not LineKind.RULE or not lines[n].text.strip(" \t").startswith("="):
            return None
        start = n
        while start and self.kinds[start - 1] in (LineKind.TEXT, LineKind.MENU):
            start -= 1
        return start, " ".join(line.text.strip(" \t") for line in lines[start:n])

    def _closing_line(self) -> int | None:
        """The first line of the paragraph that ends the file; None when something else ends it.

        The only paragraph below `# SELF-VALIDATION` is what that section says, and closes nothing.
        """
        end = len(self.kinds)
        while end and self.kinds[end - 1] is LineKind.BLANK:
            end -= 1
        start = end
        while start and self.kinds[start - 1] in (LineKind.TEXT, LineKind.QUOTE):
            start -= 1
        if start == end or (start and self.kinds[start - 1] is LineKind.MENU):
            return None
        above = start
        while above and self.kinds[above - 1] is LineKind.BLANK:
            above -= 1
        if above and self.kinds[above - 1] is LineKind.RULE:
            above -= 1  # the line under a heading
        return None if self.titles.get(above - 1) == SELF_VALIDATION else start


def _place(outline: _Outline, title: str) -> int:
    """The line before which a section goes, in a file that has none of ours."""
    if title == PROTOCOL:
        governance, progress = outline.first(GOVERNANCE), outline.first(PROGRESS)
        if governance is not None:
            return outline.end_of_section(governance)
        if progress is not None:
            return progress
    if outline.closing is None:
        return len(outline.kinds)
    validation = outline.first(SELF_VALIDATION)
    return outline.closing if validation is None else outline.end_of_section(validation)


def _front_matter_length(lines: Sequence[Line]) -> int:
    """How many lines the front matter takes, delimiters included.

    A heading of ours is never inside: else the delimiters that our own sections quote could seem to close it.
    """
    if not lines or lines[0].text.rstrip(" \t") != "---":
        return 0
    for number, line in enumerate(lines[1:], 2):
        if main_title(line.text) in OWN_TITLES:
            return 0
        if line.text.rstrip(" \t") in ("---", "..."):
            return number
    return 0


def _section(title: str, lines: Sequence[Line]) -> Section:
    return Section(title, "".join(f"{line.text}\n" for line in _without_last_blanks(lines)))


def _own_length(lines: Sequence[Line], due: str) -> int:
    """How many lines of a range are our section's: all, unless it ends in some line as the text that is due does."""
    ours = [line.text for line in split_lines(due)]
    end = _end_of(ours, [line.text for line in lines])
    if end is None or read_kinds(lines[:end], 0).unclosed is not None:
        return len(lines)
    return len(lines) - len(_without_first_blanks(lines[end:]))


def _end_of(ours: list[str], texts: list[str]) -> int | None:
    if texts[: len(ours)] == ours:
        return len(ours)
    ending = ours[-_TELLING_LINES:]
    ends = range(len(ending), len(texts) + 1)
    return next((end for end in ends if texts[end - len(ending) : end] == ending), None)


def _join(before: list[Line], after: Sequence[Line]) -> None:
    """Add the part behind a section that was taken out, kept apart by a blank line."""
    if before and after and before[-1].text.strip(" \t"):
        before.append(Line("", before[-1].ending))
    before.extend(after)


def _line_ending(lines: Sequence[Line]) -> str:
    """The ending of the first line that says something: blank lines come and go with a section."""
    return next((line.ending for line in lines if line.text.strip(" \t") and line.ending), "\n")


def _without_last_blanks(lines: Sequence[Line]) -> list[Line]:
    end = len(lines)
    while end and not lines[end - 1].text.strip(" \t"):
        end -= 1
    return list(lines[:end])


def _without_first_blanks(lines: Sequence[Line]) -> list[Line]:
    start = next((n for n, line in enumerate(lines) if line.text.strip(" \t")), len(lines))
    return list(lines[start:])
