"""Render, parse and check the two blocks that may end an agent's output.

This module does not import `re`, because the hook loads it and must start fast.

---                                        ---
SUGGESTED NEXT STEPS:                      STATUS: Risk assessment complete. Returning results to X.
  [1] Continue to Phase 04 - Design        ---
  [2] Show workflow status
---
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

DELIMITER = "---"
MENU_HEADER = "SUGGESTED NEXT STEPS:"
STATUS_PREFIX = "STATUS: "
STATUS_MIDDLE = " complete. Returning results to "
MIN_ITEMS = 2
MAX_ITEMS = 4
BLOCK_KINDS = ("next-steps", "status")
BLOCK_ERRORS = (
    "no-block",
    "wrong-delimiter",
    "wrong-header",
    "item-prefix",
    "numbering",
    "too-few-items",
    "too-many-items",
    "non-ascii",
    "crlf",
    "blank-line",
    "not-last",
    "menu-in-status",
)


def render_menu(items: Sequence[str]) -> str:
    """Render the next-steps block, ending in LF.

    Raise ValueError for items that would break it: a partial block is never returned.
    """
    lines = [f"  [{number}] {item}" for number, item in enumerate(items, 1)]
    text = "\n".join([DELIMITER, MENU_HEADER, *lines, DELIMITER, ""])
    if parse_menu(text) != tuple(items):
        raise ValueError(f"invalid items of a block: {items!r}")

    return text


def render_status(task: str, parent: str) -> str:
    """Render the status block of a sub-agent, ending in LF."""
    text = f"{DELIMITER}\n{STATUS_PREFIX}{task}{STATUS_MIDDLE}{parent}.\n{DELIMITER}\n"
    if parse_status(text) != (task, parent):
        raise ValueError(f"invalid task or parent of a status block: {task!r}, {parent!r}")
    return text


def parse_menu(output: str) -> tuple[str, ...] | None:
    """Parse the items of the next-steps block that ends an output; None unless every rule holds."""
    if check_block(output, "next-steps"):
        return None
    return tuple(line[len("  [1] ") :] for line in _ClosingBlock(output, "next-steps").body)


def parse_status(output: str) -> tuple[str, str] | None:
    """Parse task and parent of the status block at the end; None unless every rule holds."""
    if check_block(output, "status"):
        return None

    sentence = _ClosingBlock(output, "status").header[len(STATUS_PREFIX) :]
    task, middle, rest = sentence.partition(STATUS_MIDDLE)
    if not (task and middle and rest[:-1] and rest.endswith(".")):
        return None

    return task, rest[:-1]


def check_block(text: str, kind: str = "next-steps") -> list[str]:
    """Return the rules that the block at the end of an output breaks, in the order of BLOCK_ERRORS.

    An empty list means that the block is valid.
    """
    if kind not in BLOCK_KINDS:
        raise ValueError(f"unknown kind of block: {kind!r}; available: {', '.join(BLOCK_KINDS)}")

    block = _ClosingBlock(text, kind)
    if block.present:
        check = _check_menu if kind == "next-steps" else _check_status
        broken = _check_frame(block) | check(block)
    elif "\r" in text.replace("\r\n", ""):
        # A program that splits at LF does not see a block whose lines end in CR alone.
        broken = set(check_block(text.replace("\r\n", "\n").replace("\r", "\n"), kind))
        if broken != {"no-block"}:
            broken.add("crlf")
    elif kind == "status" and _ClosingBlock(text, "next-steps").present:
        broken = {"menu-in-status"}
    else:
        broken = {"no-block"}

    return [name for name in BLOCK_ERRORS if name in broken]


class _ClosingBlock:
    """The block nearest to the end of an output, split into its parts.

    It is located by its header, because `---` also opens front matter.
    """

    def __init__(self, text: str, kind: str) -> None:
        lines = text.split("\n")
        while lines and not lines[-1].strip():
            lines.pop()

        at = _find_header_line(lines, kind)
        self.present = at is not None
        if at is None:
            return

        above = _find_opening_line(lines, at)
        self.before = lines[: max(above, 0)]
        self.opening = lines[above] if above >= 0 else ""
        self.blank_above = above != at - 1

        self.header = lines[at]
        self.body = []
        self.closing = ""
        self.after = []
        for number, line in enumerate(lines[at + 1 :], at + 1):
            if _is_delimiter_like(line):
                self.closing = line
                self.after = lines[number + 1 :]
                break

            self.body.append(line)


def _find_opening_line(lines: list[str], header: int) -> int:
    """Find the delimiter above a header, skipping blank lines; else return the line above it."""
    above = header - 1
    while above >= 0 and not lines[above].strip():
        above -= 1

    if above >= 0 and _is_delimiter_like(lines[above]):
        return above

    return header - 1


def _find_header_line(lines: list[str], kind: str) -> int | None:
    """Find the last line that looks like a header, even if it is malformed.

    A menu without one is located by the run of items at the very end: return the line above them.
    """
    start = "STATUS:" if kind == "status" else "SUGGESTED NEXT STEPS"
    for at in range(len(lines) - 1, -1, -1):
        if lines[at].strip()[: len(start)].upper() == start:
            return at

    if kind == "status" or not lines or not _is_delimiter_like(lines[-1]):
        return None

    end = len(lines) - 1
    top = end
    while top > 0 and _is_item_or_blank(lines[top - 1]):
        top -= 1

    if 0 < top < end:
        return top - 1

    return None


def _is_item_or_blank(line: str) -> bool:
    return not line.strip() or _parse_item_number(line) is not None


def _is_delimiter_like(line: str) -> bool:
    """Return True for two or more dashes of any kind, which look like a delimiter."""
    bare = line.strip()
    return len(bare) >= 2 and not bare.strip("-\u2010\u2011\u2012\u2013\u2014\u2015\u2500_=*")


def _parse_item_number(line: str) -> int | None:
    """Parse the number of a line that looks like an item: `[1] text`, with any indentation."""
    text = line.strip()
    number, bracket, _ = text[1:8].partition("]")
    if text.startswith("[") and bracket and number.isascii() and number.isdigit():
        return int(number)
    return None


def _is_exact_item(line: str) -> bool:
    """Return True for two blanks, a number in brackets, one blank, then text."""
    prefix = f"  [{_parse_item_number(line)}] "
    return line.startswith(prefix) and line[len(prefix) :][:1].strip() != ""


def _check_frame(block: _ClosingBlock) -> set[str]:
    """Return the broken rules that both kinds of block share."""
    inner_lines = [block.header, *block.body]
    delimiters = {block.opening.removesuffix("\r"), block.closing.removesuffix("\r")}
    lines = [block.opening, *inner_lines, block.closing]
    inside = "".join(line.removesuffix("\r") for line in inner_lines)
    checks = {
        "crlf": any("\r" in line for line in lines),
        "non-ascii": not (inside.isascii() and inside.replace("\r", "").isprintable()),
        "wrong-delimiter": delimiters != {DELIMITER},
        "blank-line": block.blank_above or any(not line.strip() for line in block.body),
        "not-last": bool(block.after),
    }
    return _select_broken(checks)


def _select_broken(checks: dict[str, bool]) -> set[str]:
    return {name for name, is_broken in checks.items() if is_broken}


def _check_menu(block: _ClosingBlock) -> set[str]:
    """Return the broken rules of a next-steps block."""
    body = [line.removesuffix("\r") for line in block.body if line.strip()]
    numbers = [_parse_item_number(line) for line in body]
    checks = {
        "wrong-header": block.header.removesuffix("\r") != MENU_HEADER,
        "item-prefix": not all(_is_exact_item(line) for line in body),
        "numbering": numbers != list(range(1, len(numbers) + 1)),
        "too-few-items": len(body) < MIN_ITEMS,
        "too-many-items": len(body) > MAX_ITEMS,
    }
    return _select_broken(checks)


def _ends_with_menu(lines: list[str]) -> bool:
    """Return True if the text before a status block ends with a menu.

    A sub-agent must not offer one, whichever block it ends with.
    """
    tail = [line for line in lines[-MAX_ITEMS - 8 :] if line.strip()]
    return (
        bool(tail)
        and _is_delimiter_like(tail[-1])
        and any(line.strip() == MENU_HEADER for line in tail)
    )


def _check_status(block: _ClosingBlock) -> set[str]:
    """Return the broken rules of a status block."""
    header = block.header.removesuffix("\r")
    sentence = header.removeprefix(STATUS_PREFIX)
    items = [line for line in [*block.body, *block.after] if _parse_item_number(line) is not None]
    checks = {
        "wrong-header": sentence == header or not sentence.strip(),
        "menu-in-status": bool(items) or _ends_with_menu(block.before),
        "wrong-delimiter": not all(_is_item_or_blank(line) for line in block.body),
    }
    return _select_broken(checks)
