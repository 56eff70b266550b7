"""Render Markdown of agents as HTML: a small, safe subset; everything else stays text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markupsafe import Markup, escape

from phasegate.core.text.visible import escape_unprintable

_HEADING = re.compile(r"(#{1,6})\s+(.*)")
_ITEM = re.compile(r"\s*(?:[-*]|\d+[.)])\s+(.*)")
_FENCE = re.compile(r"\s*(```|~~~)")
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
# Headings of a document are below those of the page
_TOP_LEVEL = 3


def render_markdown(text: str) -> Markup:
    """Render headings, lists, tables and code; HTML in the text is shown, not interpreted."""
    visible = escape_unprintable(_COMMENT.sub("", _FRONT_MATTER.sub("", text)), keep="\n\t")
    return Markup("\n").join(_render_blocks(visible.splitlines()))


def _render_blocks(lines: list[str]) -> Iterator[Markup]:
    """Yield the HTML of each block: heading, list, table, code or paragraph."""
    position = 0
    while position < len(lines):
        line = lines[position]
        if not line.strip():
            position += 1
            continue

        if match := _HEADING.fullmatch(line):
            level = min(6, _TOP_LEVEL - 1 + len(match[1]))
            yield Markup("<h{}>{}</h{}>").format(level, _render_inline(match[2]), level)
            position += 1
            continue

        end = _find_block_end(lines, position)
        block = lines[position:end]
        position = end
        if _FENCE.match(block[0]):
            body = block[1:]
            if body and _FENCE.match(body[-1]):
                body.pop()
            yield Markup("<pre>{}</pre>").format("\n".join(body))
        elif block[0].lstrip().startswith("|"):
            yield _render_table(block)
        elif _ITEM.fullmatch(block[0]):
            yield _render_list(block)
        else:
            yield Markup("<p>{}</p>").format(_render_inline(" ".join(block)))


def _find_block_end(lines: list[str], start: int) -> int:
    """Return the index after a block: to the closing fence, else to the next empty line."""
    fence = _FENCE.match(lines[start])
    for position in range(start + 1, len(lines)):
        if fence:
            if lines[position].strip().startswith(fence[1]):
                return position + 1
        elif not lines[position].strip() or _HEADING.fullmatch(lines[position]):
            return position
    return len(lines)


def _render_list(block: list[str]) -> Markup:
    """Render list items; a continued line belongs to the item before it."""
    items: list[str] = []
    for line in block:
        if match := _ITEM.fullmatch(line):
            items.append(match[1])
        else:
            items[-1] += f" {line.strip()}"

    rows = Markup("")
    for item in items:
        text = _render_inline(item)
        rows += Markup("<li>{}</li>").format(text)

    return Markup("<ul>{}</ul>").format(rows)


def _render_table(block: list[str]) -> Markup:
    """Render the rows of a table."""
    shown = Markup("")
    for line in block:
        # The line between head and body has no text
        if set(line) <= set("|-: "):
            continue

        cells = Markup("")
        for cell in line.strip().strip("|").split("|"):
            text = _render_inline(cell.strip())
            cells += Markup("<td>{}</td>").format(text)
        shown += Markup("<tr>{}</tr>").format(cells)

    return Markup("<table><tbody>{}</tbody></table>").format(shown)


def _render_inline(text: str) -> Markup:
    escaped = str(escape(text))
    coded = _CODE.sub(r"<code>\1</code>", escaped)
    return Markup(_BOLD.sub(r"<b>\1</b>", coded))  # noqa: S704 - escaped above
