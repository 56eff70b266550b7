"""The two blocks that end an agent's output: render, parse, check.

Without `re`: the hook loads this.

---                                        ---
SUGGESTED NEXT STEPS:                      STATUS: Risk assessment complete. Returning results to X.
  [1] Continue to Phase 04 - Design        ---
  [2] Show workflow status
---
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DELIMITER = "---"
MENU_HEADER = "SUGGESTED NEXT STEPS:"
STATUS_PREFIX = "STATUS: "
STATUS_MIDDLE = " complete. Returning results to "
MIN_ITEMS = 2
MAX_ITEMS = 4
BLOCK_KINDS = ("next-steps", "status")
BLOCK_ERRORS = (
    *(
        "no-block",
        "wrong-delimiter",
        "wrong-header",
        "item-prefix",
        "numbering",
        "too-few-items",
        "too-many-items",
    ),
    *("non-ascii", "crlf", "blank-line", "not-last", "menu-in-status"),
)


def render_menu(items: Sequence[str]) -> str:
    """The next-steps block, ending in LF.

    Items that would break it are a ValueError: half a block is never made.
    """
    lines = [f"  [{number}] {item}" for number, item in enumerate(items, 1)]
    text = "\n".join([DELIMITER, MENU_HEADER, *lines, DELIMITER, ""])
    if parse_menu(text) != tuple(items):
        raise ValueError(f"these items make no block: {items!r}")

    return text


def render_status(task: str, parent: str) -> str:
    """The status block of a sub-agent, ending in LF."""
    text = f"{DELIMITER}\n{STATUS_PREFIX}{task}{STATUS_MIDDLE}{parent}.\n{DELIMITER}\n"
    if parse_status(text) != (task, parent):
        raise ValueError(f"these words make no status block: {task!r}, {parent!r}")
    return text


def parse_menu(output: str) -> tuple[str, ...] | None:
    """The items of the next-steps block that ends an output; None unless every rule holds."""
    if check_block(output, "next-steps"):
        return None
    return tuple(line[len("  [1] ") :] for line in _ClosingBlock(output, "next-steps").body)


def parse_status(output: str) -> tuple[str, str] | None:
    """Task and parent of the status block that ends an output; None unless every rule holds."""
    if check_block(output, "status"):
        return None

    sentence = _ClosingBlock(output, "status").header[len(STATUS_PREFIX) :]
    task, middle, rest = sentence.partition(STATUS_MIDDLE)
    if not (task and middle and rest[:-1] and rest.endswith(".")):
        return None

    return task, rest[:-1]


def check_block(text: str, kind: str = "next-steps") -> list[str]:
    """The names of the rules that the block at the end of an output breaks, in the order of ERRORS;
    empty: none.
    """
    if kind not in BLOCK_KINDS:
        raise ValueError(f"unknown kind of block: {kind!r}; known are {', '.join(BLOCK_KINDS)}")

    found = _ClosingBlock(text, kind)
    if not found.present and "\r" in text.replace("\r\n", ""):
        # Lines that end in CR alone hide a block from all who split at LF.
        rest = check_block(text.replace("\r\n", "\n").replace("\r", "\n"), kind)
        if rest == ["no-block"]:
            return rest
        return [name for name in BLOCK_ERRORS if name in {"crlf", *rest}]

    if not found.present:
        other = _ClosingBlock(text, BLOCK_KINDS[1 - BLOCK_KINDS.index(kind)])
        if kind == "status" and other.present:
            return ["menu-in-status"]
        return ["no-block"]

    broken = _check_frame(found) | (
        _check_menu(found) if kind == "next-steps" else _check_status(found)
    )
    return [name for name in BLOCK_ERRORS if name in broken]


class _ClosingBlock:
    """The block nearest to the end of an output, in pieces.

    The header is the anchor: `---` also opens front matter.
    """

    def __init__(self, text: str, kind: str) -> None:
        lines = text.split("\n")
        while lines and not lines[-1].strip():
            lines.pop()

        at = _find_header_line(lines, kind)
        self.present = at is not None
        if at is None:
            return

        close = next(
            (n for n in range(at + 1, len(lines)) if _is_delimiter_like(lines[n])), len(lines)
        )
        above = _find_opening_line(lines, at)
        self.opening = lines[above] if above >= 0 else ""
        self.header = lines[at]
        self.blank_above = above != at - 1
        self.body = lines[at + 1 : close]
        if close < len(lines):
            self.closing = lines[close]
        else:
            self.closing = ""

        self.after = lines[close + 1 :]
        self.before = lines[: max(above, 0)]


def _find_opening_line(lines: list[str], header: int) -> int:
    """The delimiter above a header, over blank lines; else simply the line above."""
    above = header - 1
    while above >= 0 and not lines[above].strip():
        above -= 1

    if above >= 0 and _is_delimiter_like(lines[above]):
        return above

    return header - 1


def _find_header_line(lines: list[str], kind: str) -> int | None:
    """The last line that means to be a header.

    For a menu, else the line above a run of items at the very end.
    """
    if kind == "status":
        return _find_last_line(lines, lambda line: line.strip()[:7].upper() == "STATUS:")

    at = _find_last_line(lines, lambda line: line.strip()[:20].upper() == "SUGGESTED NEXT STEPS")
    if at is not None:
        return at
    if not lines or not _is_delimiter_like(lines[-1]):
        return None

    top = end = len(lines) - 1
    while top > 0 and (
        _parse_item_number(lines[top - 1]) is not None or not lines[top - 1].strip()
    ):
        top -= 1

    if 0 < top < end:
        return top - 1

    return None


def _find_last_line(lines: list[str], predicate: Callable[[str], bool]) -> int | None:
    return next((n for n in range(len(lines) - 1, -1, -1) if predicate(lines[n])), None)


def _is_delimiter_like(line: str) -> bool:
    """A line of two or more dashes of any sort: it means to be a delimiter."""
    bare = line.strip()
    return len(bare) >= 2 and not bare.strip("-\u2010\u2011\u2012\u2013\u2014\u2015\u2500_=*")


def _parse_item_number(line: str) -> int | None:
    """The number of a line that means to be an item: `[1] text`, however indented."""
    number, bracket, _ = line.strip()[:8].removeprefix("[").partition("]")
    is_item = line.strip().startswith("[") and bracket and number.isascii() and number.isdigit()
    if is_item:
        return int(number)
    return None


def _is_exact_item(line: str) -> bool:
    """Two blanks, a number in brackets, one blank, then text."""
    prefix = f"  [{_parse_item_number(line)}] "
    return line.startswith(prefix) and line[len(prefix) :][:1].strip() != ""


def _check_frame(found: _ClosingBlock) -> set[str]:
    """What is wrong with the lines that both kinds share."""
    block = [found.opening, found.header, *found.body, found.closing]
    inside = "".join(line.removesuffix("\r") for line in block[1:-1])
    checks = {
        "crlf": any("\r" in line for line in block),
        "non-ascii": not (inside.isascii() and inside.replace("\r", "").isprintable()),
        "wrong-delimiter": any(
            line.removesuffix("\r") != DELIMITER for line in (found.opening, found.closing)
        ),
        "blank-line": found.blank_above or any(not line.strip() for line in found.body),
        "not-last": bool(found.after),
    }

    return {name for name, broken in checks.items() if broken}


def _check_menu(found: _ClosingBlock) -> set[str]:
    body = [line.removesuffix("\r") for line in found.body if line.strip()]
    numbers = [_parse_item_number(line) for line in body]
    checks = {
        "wrong-header": found.header.removesuffix("\r") != MENU_HEADER,
        "item-prefix": not all(_is_exact_item(line) for line in body),
        "numbering": numbers != list(range(1, len(numbers) + 1)),
        "too-few-items": len(body) < MIN_ITEMS,
        "too-many-items": len(body) > MAX_ITEMS,
    }
    return {name for name, broken in checks.items() if broken}


def _ends_with_menu(lines: list[str]) -> bool:
    """Whether the text before a status block ends with a menu.

    A sub-agent offers none, however it closes.
    """
    tail = [line for line in lines[-MAX_ITEMS - 8 :] if line.strip()]
    return (
        bool(tail)
        and _is_delimiter_like(tail[-1])
        and any(line.strip() == MENU_HEADER for line in tail)
    )


def _check_status(found: _ClosingBlock) -> set[str]:
    header = found.header.removesuffix("\r")
    items = [line for line in [*found.body, *found.after] if _parse_item_number(line) is not None]
    checks = {
        "wrong-header": not header.startswith(STATUS_PREFIX)
        or not header[len(STATUS_PREFIX) :].strip(),
        "menu-in-status": bool(items) or _ends_with_menu(found.before),
        "wrong-delimiter": any(
            line.strip() and _parse_item_number(line) is None for line in found.body
        ),
    }
    return {name for name, broken in checks.items() if broken}
