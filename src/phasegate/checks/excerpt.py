"""Foreign text made safe to show: cut, and with nothing in it that a terminal would obey."""

from __future__ import annotations

from phasegate.core.text.escapes import for_terminal

HEAD_LINES, TAIL_LINES, LONGEST_LINE = 20, 60, 300
_LOOK_AT = 100_000  # characters at each end: no more of a flood is looked at
MOST_NAMES = 20


def excerpt(text: str) -> str:
    """The first lines, where compilers say what is wrong, and the last, where test runners do."""
    if len(text) > 2 * _LOOK_AT:
        text = f"{text[:_LOOK_AT]}\n{text[-_LOOK_AT:]}"
    lines = [_shortened(line) for line in for_terminal(text).strip("\n").split("\n")]
    left_out = len(lines) - HEAD_LINES - TAIL_LINES
    if left_out > 0:
        lines[HEAD_LINES:-TAIL_LINES] = [f"[... {left_out} lines left out ...]"]
    return "\n".join(lines)


def one_line(text: str, most: int = 200) -> str:
    """Foreign text inside a sentence of ours: one line, cut."""
    line = for_terminal(text[: 4 * most]).replace("\n", " ").replace("\t", " ").strip()
    return line if len(line) <= most else f"{line[:most]}..."


def listed(names: list[str] | tuple[str, ...]) -> str:
    """Foreign names in a sentence: the first of them, and how many more."""
    shown = ", ".join(one_line(name) for name in names[:MOST_NAMES])
    more = len(names) - MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def _shortened(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}..."
