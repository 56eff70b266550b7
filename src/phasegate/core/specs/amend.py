"""Change the text of one requirement in a feature's specification."""

from __future__ import annotations

import re
from typing import NamedTuple

from phasegate.core.specs.spec_file import MalformedSpec, find_prose_lines, split_lines

_OPEN = re.compile(r"\s{0,3}<!--\s*sk:fr\s+([^>]*?)\s*-->\s*")
_CLOSE = re.compile(r"\s{0,3}<!--\s*/sk:fr\s*-->\s*")
_SCENARIO = re.compile(r"#{1,6}\s+Scenario:")
_BORDER = re.compile(r"#{1,3}\s|\s{0,3}<!--\s*/?sk:fr")
_LIST_MARK = re.compile(r"[-*+] +")
_FROM = re.compile(r'from="[^"]*"')


class AmendedSpec(NamedTuple):
    """A specification with the new text, and the text that was there before."""

    text: str
    before: str


def amend_spec(text: str, id_: str, new: str, revision: str = "") -> AmendedSpec | None:
    """Replace the text of a requirement, or return None if the specification has none with this id.

    Raise MalformedSpec if the text or the specification cannot be read without guessing.

    Its scenarios stay. `revision` is the current one of the requirement: a change of a current
    requirement starts from it afterwards, since the user has seen its text.
    """
    lines = split_lines(text)
    prose = find_prose_lines(text)
    _check_text(new)
    start = next(
        (
            index
            for index in sorted(prose)
            if (found := _OPEN.fullmatch(lines[index])) and f'id="{id_}"' in found[1]
        ),
        None,
    )
    if start is None:
        return _amend_listed(lines, prose, id_, new)

    end = next(
        index for index in (*sorted(prose), len(lines)) if index > start and _ends(lines, index)
    )
    opening = lines[start]
    if revision and 'change="' in opening:
        opening = _FROM.sub(f'from="{revision}"', opening)
    before = "\n".join(lines[start + 1 : end]).strip()
    mark = _LIST_MARK.match(before)
    text = new.strip()
    if mark and "\n" not in text and not _LIST_MARK.match(text):
        text = f"{mark[0]}{text}"
    changed = [*lines[:start], opening, text, *_add_gap(lines[end:])]
    return AmendedSpec("\n".join(changed), before)


def _check_text(new: str) -> None:
    """Raise MalformedSpec for a text that would end its requirement or begin another one."""
    lines = split_lines(new)
    for index in sorted(find_prose_lines(new)):
        if _BORDER.match(lines[index]):
            raise MalformedSpec(f"the new text has a heading or an annotation: {lines[index]}")


def _ends(lines: list[str], index: int) -> bool:
    """Return whether the text of a requirement ends before this line."""
    return (
        index == len(lines)
        or _CLOSE.fullmatch(lines[index]) is not None
        or _SCENARIO.match(lines[index]) is not None
    )


def _add_gap(lines: list[str]) -> list[str]:
    if lines and _SCENARIO.match(lines[0]):
        return ["", *lines]
    return lines


def _amend_listed(
    lines: list[str], prose: frozenset[int], id_: str, new: str
) -> AmendedSpec | None:
    """Replace the text after an id that begins a list item."""
    pattern = re.compile(rf"(\s*[-*+]\s+[*_`]{{0,3}}{re.escape(id_)}[*_`:]*\s*)(.*)")
    for index in sorted(prose):
        if found := pattern.fullmatch(lines[index]):
            one_line = " ".join(new.split())
            changed = [*lines[:index], f"{found[1]}{one_line}", *lines[index + 1 :]]
            return AmendedSpec("\n".join(changed), found[2])
    return None
