"""Write the texts of a merge: the subject, the message and the one document of a feature.

The document is the specification as built: without comments, markers, menus and empty sections,
with the requirement ids in the text and the decisions of the user at the end.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from phasegate.core.forge.outgoing_text import defuse_triggers
from phasegate.core.forge.pull_decision import find_issue_reference
from phasegate.core.plan.requirements import Requirement, read_spec
from phasegate.core.text.markdown_lines import collapse_whitespace, iter_markdown_lines
from phasegate.core.text.visible import escape_unprintable

MAX_SUBJECT_CHARS = 72
SPECIFICATIONS = ("spec.md", "upgrade-plan.md", "test-strategy.md", "proposal.md", "plan.md")
CHANGELOG_NAMES = ("CHANGELOG", "CHANGES", "CHANGE_LOG", "HISTORY", "NEWS", "RELEASES")
_TEXT_SUFFIXES = ("", ".md", ".rst", ".txt", ".markdown")
_PROPOSAL = "proposal.md"
_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*")
_TITLE_PREFIX = re.compile(r"(?:proposal|feature|fix|specification|spec|upgrade)\b\s*[:-]\s*", re.I)
_NO_TITLE = re.compile(r"proposal|feature|spec|specification|plan|tasks|\S+\.md", re.I)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_OPEN_REQUIREMENT = re.compile(r'^\s*<!--\s*sk:fr\s+id="([^"]+)".*-->\s*$')
_MARKER = re.compile(r"^\s*</?(?:review|verdict|task_status)\b.*$", re.I)
# Between two lines of three hyphens, the first of which is the first line
_FRONT_MATTER = re.compile(
    r"\A---[ \t]*\n.*?^---[ \t]*$\n?",
    re.M | re.DOTALL,
)
_MENU = re.compile(
    r"^---\n(?:SUGGESTED NEXT STEPS:|STATUS:)[^\n]*\n(?:  \[\d\][^\n]*\n)*---$", re.M
)
_BULLET = re.compile(r"\A\s*[-*+]\s+")
_TABLE_HEAD_LINES = 2
# Also with the reason that the skeletons ask for, as in "None: nothing is stored."
_NOTHING = re.compile(r"(?:[-*+]\s*)?(?:(?:none|n/a)(?:\.|\s*[:;(].*|,? because .*)?|-)?", re.I)
_MENTIONS_CHANGELOG = re.compile(r"change\s?log|changes\.(?:md|rst)|release notes", re.I)
_FORBIDS = re.compile(
    r"\b(?:do not|don't|never|must not|should not|shouldn't|no need to|not necessary|avoid|"
    r"without (?:editing|touching|changing))\b|"
    r"\b(?:generated|updated|written|maintained|created)\b[^.]{0,40}"
    r"\b(?:automatically|by (?:the )?maintainers?|release|from (?:the )?commits?)\b|"
    r"\bautomatically (?:generated|updated|created)\b",
    re.I,
)


class _MarkdownSection(NamedTuple):
    """A heading with its level, and the lines up to the next heading."""

    heading: str
    level: int
    body: list[str]


class DeliveredTexts(NamedTuple):
    """Texts from the journal about a feature that is merged."""

    slug: str
    description: str
    # Texts of the feature's documents by name, relative to its folder
    documents: Mapping[str, str]
    # Words of the user from `resolve`, `back` and answers to questions
    decisions: tuple[str, ...]


def make_title(texts: DeliveredTexts) -> str:
    """Return the title of the proposal or the specification, else the user's description."""
    for name in (_PROPOSAL, *SPECIFICATIONS):
        title = _read_title(texts.documents.get(name, ""))
        if title and not _NO_TITLE.fullmatch(title) and "{" not in title:
            # An agent wrote it
            return defuse_triggers(shorten_subject(title))
    title = escape_unprintable(shorten_subject(texts.description)) or texts.slug
    if find_issue_reference(texts.description):
        # It may be by an unknown author
        title = defuse_triggers(title)
    return title


def shorten_subject(text: str) -> str:
    """Return a text as the subject of a commit: one line, a capital, no full stop."""
    line = collapse_whitespace(text)
    if len(line) > MAX_SUBJECT_CHARS:
        line = textwrap.shorten(line, MAX_SUBJECT_CHARS, placeholder="")
        line = line or collapse_whitespace(text)[:MAX_SUBJECT_CHARS]
    line = line.rstrip(" .,;:-")
    return line[:1].upper() + line[1:]


def render_document(texts: DeliveredTexts) -> str:
    """Render the specification as built, with the reason for it and the decisions of the user."""
    body = _clean_document(_find_specification(texts))
    parts = [f"# {make_title(texts)}"]
    reason = _find_reason(texts)
    if reason and reason not in body:
        parts.append(f"## Why\n\n{reason}")
    parts.append(body or texts.description)
    assumptions = _find_section(_clean_document(texts.documents.get(_PROPOSAL, "")), "assumptions")
    if assumptions and assumptions not in body:
        parts.append(f"## Assumptions\n\n{assumptions}")
    # The archive step may have added them already
    decisions = [words for words in texts.decisions if words not in body]
    if any(decisions):
        parts.append("## Decisions\n\n" + "\n".join(_bullets(decisions)))

    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def render_merge_message(texts: DeliveredTexts, document_path: str) -> str:
    """Render the message of the merge: what, why, decisions and requirements."""
    title = make_title(texts)
    what = _first_paragraph(
        _find_section(_clean_document(_find_specification(texts)), "overview", "summary", "")
    )
    paragraphs = [part for part in (what, _find_reason(texts)) if part]
    request = collapse_whitespace(texts.description)
    if not paragraphs and request.rstrip(".") != title:
        paragraphs = [request]

    lines = [""]
    for paragraph in dict.fromkeys(paragraphs):
        lines += ["", _fill(paragraph)]
    if any(texts.decisions):
        lines += ["", "Decisions:", *_wrapped_bullets(texts.decisions)]
    if requirements := _read_requirements(texts):
        named = (f"{one.id}: {one.text}" for one in requirements)
        lines += ["", "Requirements:", *_wrapped_bullets(named)]
    if document_path:
        lines += ["", f"Specification: {document_path}"]

    # Agents wrote most of it: no escape sequence, and nothing that closes an issue on a forge
    text = escape_unprintable("\n".join(lines), keep="\n")
    return f"{title}{defuse_triggers(text)}\n"


def find_changelog(paths: Iterable[str]) -> str:
    """Return the changelog that a project keeps in its root folder; empty if there is none."""
    names = {
        name + suffix: (CHANGELOG_NAMES.index(name), _TEXT_SUFFIXES.index(suffix))
        for name in CHANGELOG_NAMES
        for suffix in _TEXT_SUFFIXES
    }
    ranked = {}
    for path in paths:
        name, dot, suffix = path.partition(".")
        if rank := names.get(name.upper() + dot + suffix.lower()):
            ranked[path] = rank
    return min(ranked, key=lambda path: ranked[path], default="")


def forbids_changelog(guidelines: str) -> bool:
    """Return whether the contribution guidelines tell contributors to leave the changelog alone."""
    sentences = re.split(r"(?<=[.!?])\s+|\n\s*\n|\n\s*[-*]\s", guidelines)
    return any(
        _MENTIONS_CHANGELOG.search(sentence) and _FORBIDS.search(collapse_whitespace(sentence))
        for sentence in sentences
    )


def _find_specification(texts: DeliveredTexts) -> str:
    return next((texts.documents[name] for name in SPECIFICATIONS if texts.documents.get(name)), "")


def _read_requirements(texts: DeliveredTexts) -> tuple[Requirement, ...]:
    return read_spec(texts.documents.get("spec.md", "")).requirements


def _read_title(text: str) -> str:
    for line in iter_markdown_lines(text):
        heading = _HEADING.fullmatch(line.text.strip())
        if line.fence_info is None and heading and len(heading[1]) == 1:
            return _TITLE_PREFIX.sub("", heading[2], count=1).strip("*_` ")
    return ""


def _find_reason(texts: DeliveredTexts) -> str:
    proposal = _clean_document(texts.documents.get(_PROPOSAL, ""))
    return _first_paragraph(_find_section(proposal, "problem", "why", "motivation", ""))


def _find_section(text: str, *names: str) -> str:
    """Return the text of the first section with one of these names; "" is the introduction."""
    sections: dict[str, list[str]] = {"": []}
    current = ""
    for line in text.splitlines():
        heading = _HEADING.fullmatch(line)
        if heading:
            current = heading[2].lower()
        sections.setdefault(current, []).append("" if heading else line)

    found = ("\n".join(sections[name]).strip() for name in names if name in sections)
    return next((section for section in found if section), "")


def _first_paragraph(text: str) -> str:
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.strip() and not paragraph.lstrip().startswith(("|", ">", "```", "~~~")):
            return collapse_whitespace(_BULLET.sub("", paragraph, count=1))
    return ""


def _clean_document(text: str) -> str:
    """Remove front matter, title, comments, markers, menus and empty sections from a document."""
    unified = text.replace("\r\n", "\n")
    body = _FRONT_MATTER.sub("", unified, count=1)
    visible = _MENU.sub("", body)
    visible = re.sub(r"^Decisions:\n", "## Decisions\n\n", visible, flags=re.M)
    lines = [*_show_requirement_ids(visible.split("\n"))]
    uncommented = _remove_comments("\n".join(lines))
    kept = [line.rstrip() for line in uncommented.split("\n") if not _MARKER.match(line)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(_drop_empty_sections(kept))).strip()


def _show_requirement_ids(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines with the id of each annotated requirement in its first line of text."""
    pending = ""
    for line in lines:
        opened = _OPEN_REQUIREMENT.match(line)
        if opened:
            pending = opened[1]
        elif pending and line.strip():
            words = _BULLET.sub("", line, count=1).strip()
            if pending in words:
                yield line
            else:
                yield f"- **{pending}**: {words}"
            pending = ""
        else:
            yield line


def _remove_comments(text: str) -> str:
    """Remove comments outside of code blocks."""
    parts = re.split(r"(^```.*?^```[ \t]*$)", text, flags=re.M | re.DOTALL)
    return "".join(part if part.startswith("```") else _COMMENT.sub("", part) for part in parts)


def _drop_empty_sections(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines without the title, and without headings that have no text below them."""
    sections: list[_MarkdownSection] = [_MarkdownSection("", 0, [])]
    for line in lines:
        heading = _HEADING.fullmatch(line) if line.startswith("#") else None
        if heading is None:
            sections[-1].body.append(line)
        else:
            is_title = len(heading[1]) == 1
            sections.append(_MarkdownSection("" if is_title else line, len(heading[1]), []))

    kept: list[_MarkdownSection] = []
    for section in reversed(sections):
        has_subsection = bool(kept) and kept[-1].level > section.level
        if _has_text(section.body):
            kept.append(section)
        elif has_subsection:
            kept.append(section._replace(body=[""]))

    for section in reversed(kept):
        yield section.heading
        yield from section.body


def _has_text(body: Iterable[str]) -> bool:
    """Return whether a section says something: a table needs a row, a list more than "None"."""
    lines = [line.strip() for line in body]
    rows = [line for line in lines if line.startswith("|")]
    prose = [line for line in lines if not line.startswith("|") and not _NOTHING.fullmatch(line)]
    return bool(prose) or len(rows) > _TABLE_HEAD_LINES


def _bullets(texts: Iterable[str]) -> Iterator[str]:
    for text in dict.fromkeys(map(collapse_whitespace, texts)):
        if text:
            yield f"- {text}"


def _wrapped_bullets(texts: Iterable[str]) -> Iterator[str]:
    for line in _bullets(texts):
        yield _fill(line, "  ")


def _fill(text: str, indent: str = "") -> str:
    """Wrap a text at spaces alone: a requirement id such as FR-A-001 stays in one piece."""
    return textwrap.fill(
        text,
        MAX_SUBJECT_CHARS,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
