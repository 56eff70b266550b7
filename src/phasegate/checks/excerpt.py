"""Make untrusted text safe to display: truncated, and without terminal control sequences."""

from __future__ import annotations

import re

from phasegate.core.text.escapes import sanitize_for_terminal
from phasegate.core.text.wording import join_names, shorten

HEAD_LINES = 20
TAIL_LINES = 60
MAX_LINE_CHARS = 300
# Characters at each end; the middle of a longer text is not scanned
_MAX_SCANNED_CHARS = 100_000
MAX_NAMES = 20


def make_excerpt(text: str) -> str:
    """Return the first and last lines of an output.

    Compilers report errors first, test runners last.
    """
    if len(text) > 2 * _MAX_SCANNED_CHARS:
        text = f"{text[:_MAX_SCANNED_CHARS]}\n{text[-_MAX_SCANNED_CHARS:]}"

    printable = sanitize_for_terminal(text).strip("\n")
    lines = [shorten(line, MAX_LINE_CHARS) for line in printable.split("\n")]
    left_out = len(lines) - HEAD_LINES - TAIL_LINES
    if left_out > 0:
        lines[HEAD_LINES:-TAIL_LINES] = [f"[... {left_out} lines omitted ...]"]

    return "\n".join(lines)


# Lines in which a package manager says why it failed, the most specific first
_CAUSES = tuple(
    re.compile(pattern, re.I | re.M)
    for pattern in (
        r"^.*requires at least Node\.js v?[\d.]+.*(?:\n.*current version of Node\.js.*)?",
        r"^.*engine \"?node\"? is incompatible.*",
        r"^.*requires a different python.*",
        r"^.*multiple top-level packages discovered.*",
        r"^.*no matching (?:distribution|version) found.*",
        r"^.*could not find a version that satisfies.*",
        r"^.*404 +'[^']+' is not in.*",
        r"^.*(?:\S+: (?:command )?not found|no such file or directory).*",
        r"^(?:npm |pnpm )?(?:err!|error|fatal|ERR_\w+)\b.{8,}",
    )
)
_NO_CAUSE = re.compile(r"Node\.js v[\d.]+|.*complete log of this run.*|\s*", re.I)


def find_cause(output: str) -> str:
    """Return the line of an output that names the cause of a failure, else its last line."""
    text = sanitize_for_terminal(output[-_MAX_SCANNED_CHARS:])
    for pattern in _CAUSES:
        found = pattern.search(text)
        if found:
            return to_one_line(found[0])

    lines = [line for line in text.splitlines() if not _NO_CAUSE.fullmatch(line)]
    return to_one_line(lines[-1]) if lines else ""


def to_one_line(text: str, max_chars: int = 200) -> str:
    """Convert untrusted text to a single, truncated line for use inside a sentence."""
    line = (
        sanitize_for_terminal(text[: 4 * max_chars]).replace("\n", " ").replace("\t", " ").strip()
    )
    return shorten(line, max_chars)


def format_names(names: list[str] | tuple[str, ...], max_names: int = MAX_NAMES) -> str:
    """Join the first few untrusted names for use in a sentence, and add how many were omitted."""
    return join_names([to_one_line(name) for name in names], max_names)
