"""Shorten texts for a prompt: passages about some requirements, outlines of files, short diffs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

_HEADING = re.compile(r"(#{1,6})\s+(.*)")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
# A line that declares something, in the supported languages
_DECLARATION = re.compile(
    r"\s*(?:export\s+|default\s+|pub(?:\([a-z]+\))?\s+|public\s+|private\s+|protected\s+|static\s+"
    r"|async\s+|abstract\s+|declare\s+)*"
    r"(?:def|class|func|function|fn|interface|struct|enum|trait|impl|type|mod|module|describe|it|test)"
    r"\b.*[({:\w]"
    r"|[A-Z][A-Z0-9_]+\s*(?::.*)?=.*"
    # A method without a keyword, as in JavaScript and Java
    r"|\s+(?!(?:if|else|for|while|do|switch|catch|try|with|return|new)\b)"
    r"(?:[\w$<>\[\]]+\s+)*[\w$#]+\([^;]*\)\s*(?::[^;{]*)?\{$"
)
_MAX_OUTLINE_LINE = 120
_LISTED_ELSEWHERE = ("## Commands", "## Layout")
# Sections of a specification that concern every package: terms, limits and what is left out
_FOR_EVERY_PACKAGE = re.compile(
    r"#+ (?:overview|quality requirements|(?:.* )?out of scope)", re.IGNORECASE
)
# Sections of a trace analysis that concern every package
_CAUSE = re.compile(
    r"#+ (?:.* )?(?:root cause|what the fix must do|same defect elsewhere)", re.IGNORECASE
)
_REQUIREMENT = re.compile(r"^\s*<!--\s*sk:fr\b.*?<!--\s*/sk:fr\s*-->", re.DOTALL | re.M)
_TABLE_RULE = re.compile(r"\|(?:\s*:?-+:?\s*\|)+\s*")
_BARE_ITEM = re.compile(r"- `[^`]+`\s*")


class _Section(NamedTuple):
    level: int
    heading: str
    lines: list[str]


def _split_sections(text: str) -> list[_Section]:
    sections = [_Section(0, "", [])]
    for line in text.splitlines():
        heading = _HEADING.match(line)
        if heading:
            sections.append(_Section(len(heading[1]), line, []))
        else:
            sections[-1].lines.append(line)

    return sections


def excerpt_requirements(text: str, ids: Collection[str]) -> str:
    """Return the scenarios, list items and table rows that name one of the ids.

    What concerns every package is kept: the overview, the limits, what is out of scope, and the
    cause that a trace analysis found. The annotated requirements themselves are left out: the
    package states them.
    """
    names = "|".join(map(re.escape, ids)) or r"\b\B"
    named = re.compile(rf"(?<![\w-])(?:{names})(?![\w-])")
    kept: list[str] = []
    general: list[str] = []

    for section in _split_sections(_REQUIREMENT.sub("", text)):
        lines = [line for line in section.lines if "<!--" not in line]
        if _FOR_EVERY_PACKAGE.fullmatch(section.heading):
            general += ["", section.heading, *lines]
        elif named.search(section.heading) or _CAUSE.fullmatch(section.heading):
            kept += ["", section.heading, *lines]
        elif any(map(named.search, lines)):
            kept += ["", section.heading, "", *_keep_named_lines(lines, named)]

    text = re.sub(r"\n{3,}", "\n\n", "\n".join([*general, *kept])).strip()
    return f"{text}\n" if kept else ""


def _keep_named_lines(lines: list[str], named: re.Pattern[str]) -> Iterator[str]:
    """Yield the lines that name an id, and the head of each table."""
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        is_head = _TABLE_RULE.fullmatch(line) or _TABLE_RULE.fullmatch(following)
        if is_head or named.search(line):
            yield line


def drop_empty_sections(text: str) -> str:
    """Return a Markdown text without comments and without headings that have no text below.

    Lists of commands and folders as `init` writes them are left out: a prompt has the commands of
    the checks and the tree.
    """
    sections = _split_sections(_COMMENT.sub("", text))
    kept: list[_Section] = []

    for index, section in enumerate(sections):
        if section.heading in _LISTED_ELSEWHERE and all(map(_is_bare_item, section.lines)):
            continue

        following = sections[index + 1 : index + 2]
        has_subsection = bool(following) and following[0].level > section.level > 0
        if any(map(str.strip, section.lines)) or has_subsection or section.level == 1:
            kept.append(section)

    lines = [line for one in kept for line in (one.heading, *one.lines) if line or one.heading]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines).strip("\n"))
    return f"{text}\n" if text else ""


def _is_bare_item(line: str) -> bool:
    return not line.strip() or _BARE_ITEM.fullmatch(line) is not None


def outline_file(text: str, max_characters: int, path: str = "") -> str:
    """Return the lines of a file that declare something, or headings, each with its number."""
    lines: list[str] = []
    wanted = _HEADING if path.endswith(".md") else _DECLARATION
    room = max_characters

    for number, line in enumerate(text.splitlines(), 1):
        if not wanted.match(line):
            continue

        shown = f"{number}: {line.rstrip()[:_MAX_OUTLINE_LINE]}"
        room -= len(shown) + 1
        if room < 0:
            lines.append("...")
            break

        lines.append(shown)

    return "\n".join(lines) + "\n" if lines else ""


class ShortDiff(NamedTuple):
    """The part of a diff that fits, and the files that do not."""

    text: str
    left_out: tuple[str, ...]


def shorten_diff(diff: str, max_characters: int) -> ShortDiff:
    """Shorten a diff to `max_characters` by leaving out whole files, the longest first."""
    files = [*_split_diff(diff)]
    room = max_characters
    kept = set()

    for index in sorted(range(len(files)), key=lambda index: len(files[index][1])):
        room -= len(files[index][1])
        if room < 0:
            break
        kept.add(index)

    return ShortDiff(
        "".join(text for index, (_, text) in enumerate(files) if index in kept),
        tuple(name for index, (name, _) in enumerate(files) if index not in kept),
    )


def _split_diff(diff: str) -> Iterator[tuple[str, str]]:
    """Yield each file of a diff, with its name."""
    starts = [match.start() for match in re.finditer(r"^diff --git ", diff, re.MULTILINE)]
    for start, end in zip(starts, [*starts[1:], len(diff)], strict=True):
        first_line = diff[start : diff.find("\n", start)]
        yield first_line.rpartition(" b/")[2], diff[start:end]
