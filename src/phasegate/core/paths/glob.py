"""Git-style patterns: match a path, and tell whether two patterns can match the same path.

Written here and not taken from `pathspec`, whose expressions backtrack (`*a*a*a*x` stalls on a long
name) and let `$` match before a trailing newline. Patterns and names both come from agents. Tests
compare the two, and real git.

`*` and `?` match within a part of a path, `[...]` one character, `**` any number of parts. A
pattern without a slash inside floats: it matches at any depth. What matches a folder matches
everything below it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import takewhile

WILDCARDS = frozenset("*?[")
_NAME_END = r"(?=/|\Z)"


def is_pattern(entry: str) -> bool:
    """Whether an entry is more than a plain path."""
    return not WILDCARDS.isdisjoint(entry)


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """An expression that matches the paths of a pattern, in time that no choice of either can blow
    up.

    Each `*` and `**` takes the shortest text that lets the fixed piece behind it match and never
    gives that up: for patterns of this kind the first place is always good enough, so nothing is
    tried twice.
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
    """One expression that matches what any of the patterns matches."""
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
    """The parts of a pattern from the root on; a floating one begins with `**`.

    Never two `**` in a row.
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
    """Parts between the `**`; and whether only what lies below the last one matches (`a/**`, `a/`)."""
    if parts == ["**"]:
        return folder, [["*"]]

    below_only = folder or parts[-1] == "**"
    runs: list[list[str]] = [[]]

    for part in parts[:-1] if parts[-1] == "**" else parts:
        if part == "**":
            runs.append([])
        else:
            runs[-1].append(part)

    return below_only, runs


def _build_part_regex(part: str) -> str:
    """One part: fixed pieces with stars between them."""
    if not part.strip("*"):
        return "[^/]+"

    pieces = _split_at_stars(part)
    if pieces is None:
        # Git discards a pattern with a broken range
        return r"(?!)"

    first, *rest = pieces
    if not rest:
        return first

    return (
        first + "".join(f"(?>[^/]*?{piece})" for piece in rest[:-1] if piece) + f"[^/]*{rest[-1]}"
    )


def _split_at_stars(part: str) -> list[str] | None:
    """The expressions between the stars, each of fixed length; None if a range is broken."""
    pieces = [""]
    at = 0

    while at < len(part):
        character = part[at]
        step = 1

        if character == "*":
            pieces.append("")
        elif character == "[":
            end = part.find("]", at + (3 if part[at + 1 : at + 2] in ("!", "^") else 2))
            if end > 0:
                one_of = _build_bracket_regex(part[at + 1 : end])
            else:
                one_of = None

            if one_of is None:
                return None

            pieces[-1] += one_of
            step = end + 1 - at
        else:
            pieces[-1] += "[^/]" if character == "?" else re.escape(character)

        at += step

    return pieces


def _build_bracket_regex(body: str) -> str | None:
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
    """The leading parts that hold no wildcard.

    Two patterns meet only where one head begins with the other.
    """
    if is_pattern(pattern):
        parts = split_pattern(pattern)
    else:
        parts = pattern.strip("/").split("/")

    return tuple(takewhile(lambda part: not is_pattern(part), parts))


def may_overlap(one: str, other: str) -> bool:
    """Whether some path may match both.

    Never wrongly no; a wrong yes only makes two packages wait for each other.
    """
    if is_pattern(one):
        left = split_pattern(one)
    else:
        left = one.strip("/").split("/")

    if is_pattern(other):
        right = split_pattern(other)
    else:
        right = other.strip("/").split("/")

    for a, b in zip(left, right, strict=False):
        if a == "**" or b == "**":
            return True
        if not _parts_may_overlap(a, b):
            return False

    # The shorter one covers what lies below it
    return True


def _parts_may_overlap(a: str, b: str) -> bool:
    """Two parts can name the same thing unless their fixed beginnings or endings differ."""
    if not (is_pattern(a) or is_pattern(b)):
        return a == b

    start_a, end_a = _get_literal_ends(a)
    start_b, end_b = _get_literal_ends(b)
    starts_fit = start_a.startswith(start_b) or start_b.startswith(start_a)

    return starts_fit and (end_a.endswith(end_b) or end_b.endswith(end_a))


def _get_literal_ends(part: str) -> tuple[str, str]:
    """What a part surely begins with and surely ends with.

    With a `[` no end is sure: ranges are not parsed here.
    """
    if not is_pattern(part):
        return part, part

    start = "".join(takewhile(lambda c: c not in WILDCARDS, part))
    if "[" in part:
        end = ""
    else:
        end = "".join(takewhile(lambda c: c not in WILDCARDS, reversed(part)))[::-1]

    return start, end
