"""Match paths by git-style patterns, and detect whether two patterns can match the same path.

`pathspec` is not used: its expressions backtrack (`*a*a*a*x` stalls on a long name), and `$`
matches before a trailing newline. Patterns and names both come from agents. Tests compare the
results with `pathspec` and with git.

`*` and `?` match within a part of a path, `[...]` one character, `**` any number of parts. A
pattern without an inner slash matches at any depth. A pattern that matches a folder matches
everything below it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import takewhile

WILDCARDS = frozenset("*?[")
_NAME_END = r"(?=/|\Z)"


def is_pattern(entry: str) -> bool:
    """Return True if an entry has wildcards."""
    return not WILDCARDS.isdisjoint(entry)


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern to a regex that matches in bounded time for any pattern and path.

    Each `*` and `**` takes the shortest text that lets the fixed piece after it match, and never
    backtracks: for this kind of pattern the first match is always good enough.
    """
    below_only, runs = _split_at_double_stars(split_pattern(pattern), pattern.endswith("/"))
    head, *rest = ["/".join(_build_part_regex(part) for part in run) for run in runs]
    pieces = [head] if head else []
    pieces += [
        rf"(?>(?:[^/]+/)*?{run}{_build_run_end_regex(index, rest, below_only)})"
        for index, run in enumerate(rest)
    ]
    if rest and head:
        pieces[0] += "/"
    if not rest:
        pieces[0] += "/." if below_only else _NAME_END

    return re.compile(r"\A" + "".join(pieces), re.DOTALL)


@lru_cache(maxsize=64)
def compile_any(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Compile several patterns to one expression that matches if any of them does."""
    return re.compile(
        "|".join(compile_pattern(pattern).pattern for pattern in patterns) or r"(?!)", re.DOTALL
    )


def _build_run_end_regex(index: int, rest: list[str], below_only: bool) -> str:
    if index < len(rest) - 1:
        return "/"
    if below_only:
        return "/."
    return _NAME_END


def split_pattern(pattern: str) -> list[str]:
    """Split a pattern into parts from the root; one that matches at any depth starts with `**`.

    Consecutive `**` are merged.
    """
    parts = pattern.strip("/").split("/")
    if len(parts) == 1 and not pattern.startswith("/"):
        parts = ["**", *parts]
    return [
        part
        for part, before in zip(parts, ["", *parts], strict=False)
        if not part == before == "**"
    ]


def _split_at_double_stars(parts: list[str], folder: bool) -> tuple[bool, list[list[str]]]:
    """Return the parts between the `**`, and whether only paths below the last one match.

    The latter is so for `a/**` and `a/`.
    """
    if parts == ["**"]:
        return folder, [["*"]]

    below_only = folder or parts[-1] == "**"
    runs: list[list[str]] = [[]]

    if parts[-1] == "**":
        parts = parts[:-1]

    for part in parts:
        if part == "**":
            runs.append([])
        else:
            runs[-1].append(part)

    return below_only, runs


def _build_part_regex(part: str) -> str:
    """Build the expression of one part: fixed pieces with stars between them."""
    if not part.strip("*"):
        return "[^/]+"

    pieces = _split_at_stars(part)
    if pieces is None:
        # Git ignores a pattern with an invalid range
        return r"(?!)"

    first, *rest = pieces
    if not rest:
        return first

    return (
        first + "".join(f"(?>[^/]*?{piece})" for piece in rest[:-1] if piece) + f"[^/]*{rest[-1]}"
    )


def _split_at_stars(part: str) -> list[str] | None:
    """Return the expressions between the stars, each of fixed length; None for an invalid range."""
    pieces = [""]
    at = 0

    while at < len(part):
        character = part[at]
        step = 1

        if character == "*":
            pieces.append("")
        elif character == "[":
            # The first character of a range may be `]` itself
            first = at + 2 if part.startswith(("!", "^"), at + 1) else at + 1
            end = part.find("]", first + 1)
            bracket = _build_bracket_regex(part[at + 1 : end]) if end > 0 else None
            if bracket is None:
                return None

            pieces[-1] += bracket
            step = end + 1 - at
        else:
            pieces[-1] += "[^/]" if character == "?" else re.escape(character)

        at += step

    return pieces


def _build_bracket_regex(body: str) -> str | None:
    """Translate the inside of `[...]` to a regex; None for an invalid range."""
    negated = body[:1] in ("!", "^")
    text = body[1:] if negated else body
    out = []
    at = 0

    while at < len(text):
        if text[at + 1 : at + 2] == "-" and at + 2 < len(text):
            low = text[at]
            high = text[at + 2]
            if low > high:
                return None

            out.append(f"{re.escape(low)}-{re.escape(high)}")
            at += 3
        else:
            out.append(re.escape(text[at]))
            at += 1

    return f"(?!/)[{'^' if negated else ''}{''.join(out)}]"


def get_literal_prefix(pattern: str) -> tuple[str, ...]:
    """Return the leading parts without wildcards.

    Two patterns can overlap only if one prefix starts with the other.
    """
    return tuple(takewhile(lambda part: not is_pattern(part), _split_entry(pattern)))


def _split_entry(entry: str) -> list[str]:
    if is_pattern(entry):
        return split_pattern(entry)
    return entry.strip("/").split("/")


def may_overlap(one: str, other: str) -> bool:
    """Return True if some path may match both patterns.

    A False is always right. A wrong True only makes two packages wait for each other.
    """
    for a, b in zip(_split_entry(one), _split_entry(other), strict=False):
        if a == "**" or b == "**":
            return True
        if not _parts_may_overlap(a, b):
            return False

    # The shorter one covers everything below it
    return True


def _parts_may_overlap(a: str, b: str) -> bool:
    """Return False only if the literal prefixes or suffixes of two parts are incompatible."""
    if not (is_pattern(a) or is_pattern(b)):
        return a == b

    start_a, end_a = _get_literal_ends(a)
    start_b, end_b = _get_literal_ends(b)
    starts_fit = start_a.startswith(start_b) or start_b.startswith(start_a)

    return starts_fit and (end_a.endswith(end_b) or end_b.endswith(end_a))


def _get_literal_ends(part: str) -> tuple[str, str]:
    """Return the fixed beginning and the fixed ending of a part.

    With a `[` there is no fixed ending, because ranges are not parsed here.
    """
    if not is_pattern(part):
        return part, part

    start = "".join(takewhile(lambda c: c not in WILDCARDS, part))
    if "[" in part:
        end = ""
    else:
        end = "".join(takewhile(lambda c: c not in WILDCARDS, reversed(part)))[::-1]

    return start, end
