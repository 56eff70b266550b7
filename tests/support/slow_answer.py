"""The answer grammar a second time: character by character, from the words of P6. Slow, and for short texts only.

Nothing of the product is imported: where the two differ, one of them is wrong.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata

ORDER = ["PASS", "NEEDS_REVISION", "NEEDS_CHANGES", "REJECTED", "MAJOR_ISSUES"]
ALLOWED = {
    "plan": {"PASS", "NEEDS_REVISION"},
    "challenge": {"PASS", "NEEDS_REVISION", "REJECTED"},
    "implement": set(),
    "review": {"PASS", "NEEDS_CHANGES", "MAJOR_ISSUES"},
    "archive": {"PASS", "NEEDS_CHANGES", "MAJOR_ISSUES"},
}
INVISIBLE_BESIDES = set(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u2065\u2800\u3164\uffa0\ufffc\ufffd"
)
TWINS = {"е": "e", "і": "i", "г": "r", "ѵ": "v", "ԝ": "w"}
LITERALS = ["true", "false", "null", "NaN", "Infinity", "-Infinity"]
OUT = "\ue000"  # stands for what was taken out


def slow_verdict(text: str, phase: str, truncated: bool = False) -> tuple[str | None, str | None]:
    """The verdict and the name of the error."""
    chars, gaps, lost = strip(text)
    visible, unclosed, homes = take_out(chars)
    given = markers(chars, visible, gaps)
    if any(word not in ALLOWED[phase] for _, word in given):
        return None, "ForeignVerdict"
    if not given and phase == "plan" and (truncated or unclosed or lost):
        return None, "CutOff"
    if not given:
        return None, None if phase in ("plan", "implement") else "MissingReviewMarker"
    worst = max((word for _, word in given), key=ORDER.index)
    if worst != "PASS":
        return worst, None
    if truncated or unclosed or lost:
        return None, "CutOff"
    result = last_result(chars, visible, homes)
    fine = len(given) == 1 and count_reviews(chars, visible) == 2
    fine = (
        fine
        and is_last(chars, visible, given[0][0], result)
        and not (result and result[2]["success"] is False)
    )
    fine = fine and not two_readings(chars)
    return ("PASS", None) if fine else (None, "DoubtfulPass")


def strip(text: str) -> tuple[list[str], set[int], bool]:
    """The characters without escape sequences, where those were, and whether a control string never ended."""
    seven = "".join("\x1b" + chr(ord(c) - 64) if "\x80" <= c <= "\x9f" else c for c in text)
    out: list[str] = []
    gaps: set[int] = set()
    lost = False
    i = 0
    while i < len(seven):
        if seven[i] == "\x1b":
            i, ended = end_of_escape(seven, i + 1)
            lost = lost or not ended
            gaps.add(len(out))
        elif seven[i] == "\r":
            out.append("\n")
            i += 2 if seven[i + 1 : i + 2] == "\n" else 1
        else:
            out.append(seven[i])
            i += 1
    return out, gaps, lost


def end_of_escape(text: str, i: int) -> tuple[int, bool]:
    """Where the sequence ends whose ESC stands before `i`, and whether it is ended at all."""
    kind = text[i : i + 1]
    if kind and kind in "]PX^_":
        i += 1
        while (
            i < len(text) and text[i] not in "\x1b\r\n" and not (kind == "]" and text[i] == "\x07")
        ):
            i += 1
        if text[i : i + 1] == "\x07":
            return i + 1, True
        return (i + 2, True) if text[i : i + 2] == "\x1b\\" else (i, False)
    last = "@" if kind == "[" else "0"
    i += kind == "["
    while kind == "[" and i < len(text) and "0" <= text[i] <= "?":
        i += 1
    while i < len(text) and " " <= text[i] <= "/":
        i += 1
    return i + (i < len(text) and last <= text[i] <= "~"), True


def two_readings(chars: list[str]) -> bool:
    """Whether a comment ends in HTML where it goes on in XML: `<!-->`, `<!--->`, or one that holds `--!>`."""
    text = "".join(chars)
    return any(starts_comment_oddly(text, i) for i in comments(chars))


def starts_comment_oddly(text: str, i: int) -> bool:
    end = text.find("-->", i + 2)
    return end < i + 4 or "--!>" in text[i + 4 : end]


def comments(chars: list[str]) -> list[int]:
    """Where comments begin that nothing else holds."""
    found: list[int] = []
    take_out(chars, found)
    return found


def take_out(
    chars: list[str], comments: list[int] | None = None
) -> tuple[list[bool], bool, list[tuple[int, int, int, int, str]]]:
    """What is left, whether something was never closed, and the fences: start, end, inner start, inner end, info."""
    text = "".join(chars)
    visible = [True] * len(text)
    homes = []
    i = 0
    while i < len(text):
        at_line_start = i == 0 or text[i - 1] == "\n"
        fence = fence_line(text, i) if at_line_start else None
        low = text[i : i + 9].lower()
        end: int | None
        if fence:
            run, info = fence
            i += len(line_at(text, i)) - len(line_at(text, i).lstrip(" "))
            end, inner_end = end_of_fence(text, i, run)
            inner = min(i + len(line_at(text, i)) + 1, len(text))
            if end is not None:
                homes.append((i, end, inner, max(inner, inner_end), info))
        elif low.startswith("<!--"):
            at = text.find("-->", i + 2)
            end = None if at < 0 else at + 3
            if comments is not None:
                comments.append(i)
        elif low == "<![cdata[":
            at = text.find("]]>", i + 9)
            end = None if at < 0 else at + 3
        elif thought_tag(text, i) == (1, True):
            end = end_of_thought(text, i)
        else:
            i += 1
            continue
        stop = len(text) if end is None else end
        visible[i:stop] = [False] * (stop - i)
        if end is None:
            return visible, True, homes
        i = stop
    return visible, False, homes


def line_at(text: str, i: int) -> str:
    return text[i:].split("\n", 1)[0]


def fence_line(text: str, i: int) -> tuple[str, str] | None:
    line = line_at(text, i)
    bare = line.lstrip(" ")
    if len(line) - len(bare) > 3 or bare[:3] not in ("```", "~~~"):
        return None
    rest = bare.lstrip(bare[0])
    if bare[0] == "`" and "`" in rest:
        return None
    return bare[: len(bare) - len(rest)], rest.strip().lower()


def end_of_fence(text: str, i: int, run: str) -> tuple[int | None, int]:
    at = i + len(line_at(text, i)) + 1
    while at <= len(text) - 1:
        line = line_at(text, at)
        bare = line.strip(" \t")
        indent = len(line) - len(line.lstrip(" "))
        if (
            indent <= 3
            and not line[indent:].startswith("\t")
            and len(bare) >= len(run)
            and set(bare) == {run[0]}
        ):
            return at + len(line), at - 1
        at += len(line) + 1
    return None, len(text)


def thought_tag(text: str, i: int) -> tuple[int, bool]:
    """The length of `<` or `</` and whether a whole thought tag stands here."""
    slash = 2 if text[i : i + 2] == "</" else 1
    name = text[i + slash : i + slash + 7]
    after = text[i + slash + 7 : i + slash + 8]
    if (
        text[i] != "<"
        or name.lower() != "thought"
        or not name.isascii()
        or not (after.isspace() or after in (">", "/"))
    ):
        return slash, False
    end = min((at for at in (text.find("<", i + 1), text.find(">", i)) if at >= 0), default=-1)
    return slash, bool(after) and end >= 0 and text[end] == ">"


def end_of_thought(text: str, i: int) -> int | None:
    depth = 0
    while i < len(text):
        slash, whole = thought_tag(text, i)
        if whole:
            depth += 1 if slash == 1 else -1
            i = text.index(">", i)
            if depth == 0:
                return i + 1
        i += 1
    return None


def markers(chars: list[str], visible: list[bool], gaps: set[int]) -> list[tuple[int, str]]:
    """Where each counting marker's line ends, and its verdict. One that stripping put together spoils all like it."""
    found = []
    spoilt = set()
    i = 0
    for line in "".join(chars).split("\n"):
        word = line.rstrip(" \t").removeprefix("<review>").removesuffix("</review>")
        marker = f"<review>{word}</review>"
        if word in ORDER and line.rstrip(" \t") == marker:
            if any(i < gap < i + len(marker) for gap in gaps):
                spoilt.add(word)
            if visible[i]:
                found.append((i + len(line), word))
        i += len(line) + 1
    return [(end, word) for end, word in found if word not in spoilt]


def count_reviews(chars: list[str], visible: list[bool]) -> int:
    """How often `<review` or `</review` is left, in any spelling."""
    text = "".join(c if shown else OUT for c, shown in zip(chars, visible, strict=True))
    while "&amp;" in text:
        text = text.replace("&amp;", "&")
    while "%25" in text:
        text = text.replace("%25", "%")
    text = re.sub(
        r"&(?:lt|#0*60|#x0*3c);?|%3c|\\u003c|\\x3c|\\u\{0*3c\}|[＜﹤˂ᐸ〈⟨\u2329]",
        "<",
        text,
        flags=re.IGNORECASE,
    )
    letters = []
    for c in unicodedata.normalize("NFKD", text).casefold():
        hidden = (
            unicodedata.category(c) in ("Cc", "Cf", "Zs", "Zl", "Zp", "Mn", "Me")
            or c in INVISIBLE_BESIDES
        )
        if not hidden:
            letters.append(TWINS.get(c, c))
    return len(re.findall(r"<[/\\⁄∕]*review", "".join(letters)))


def last_result(
    chars: list[str], visible: list[bool], homes: list[tuple[int, int, int, int, str]]
) -> tuple[int, int, dict[str, object]] | None:
    """The last valid result: its start and end (those of its fence, if it is alone in one), and its fields."""
    text = "".join(chars)
    stretches = [
        (inner, inner_end, (start, end))
        for start, end, inner, inner_end, info in homes
        if info in ("", "json")
    ]
    i = 0
    while i < len(text):
        end = i
        while end < len(text) and visible[end]:
            end += 1
        stretches.append((i, end, (-1, -1)))
        i = end + 1
    last = None
    for start, end, home in sorted(stretches):
        i = start
        while i < end:
            if text[i] != "{" or not text[i + 1 : end].lstrip(" \t\n\r").startswith('"'):
                i += 1
                continue
            stop, whole = end_of_object(text, i, end)
            fields = load(text[i:stop]) if whole else None
            if fields:
                alone = home[0] >= 0 and not (text[start:i] + text[stop:end]).strip(" \t\n")
                last = (
                    (*(home if alone else (i, stop)), fields)
                    if home[0] < 0 or alone
                    else (-1, -1, fields)
                )
            i = max(stop, i + 1)
    return last


def end_of_object(text: str, i: int, end: int) -> tuple[int, bool]:
    """Where the object ends or breaks off, and which."""
    stack: list[str] = []
    while i < end:
        c = text[i]
        if c in "{[":
            if stack[-1:] == ["}"] and not text[:i].rstrip(" \t\n\r").endswith(":"):
                return i, False
            stack.append({"{": "}", "[": "]"}[c])
        elif c in "}]":
            fits = stack.pop() == c
            if not fits or not stack:
                return i + 1, fits
        else:
            after = end_of_word(text, i, end)
            if after is None:
                return i, False
            i = after - 1
        i += 1
    return end, False


def end_of_word(text: str, i: int, end: int) -> int | None:
    """The place after the string, literal or other character of JSON that starts here; None if none does."""
    if text[i] != '"':
        word = next((w for w in LITERALS if text.startswith(w, i, end)), text[i])
        return i + len(word) if word in LITERALS or word in " \t\n\r,:-+.eE0123456789" else None
    i += 1
    while i < end and text[i] != '"' and text[i] >= " ":
        i += 2 if text[i] == "\\" and text[i + 1 : i + 2] != "\n" else 1
    return i + 1 if text[i:end][:1] == '"' else None


def load(text: str) -> dict[str, object] | None:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len({key for key, _ in pairs}) < len(pairs):
            raise ValueError
        return dict(pairs)

    try:
        fields: dict[str, object] = json.loads(
            text, object_pairs_hook=unique, parse_constant=lambda _: 1 / 0
        )
        json.dumps(fields, ensure_ascii=False).encode()
    except (ValueError, ZeroDivisionError, RecursionError):
        return None
    if not {"success", "status"} <= fields.keys():
        return None
    escalates = fields["success"] is False and fields["status"] == "blocked"
    if not escalates and not {"job_id", "wp_id"} <= fields.keys():
        return None
    good = isinstance(fields.get("job_id", ""), str) and isinstance(fields.get("wp_id"), str | None)
    good = good and isinstance(fields["success"], bool) and isinstance(fields["status"], str)
    return fields if good and all(well_typed(key, value) for key, value in fields.items()) else None


def well_typed(key: str, value: object) -> bool:
    if key in ("summary", "pr_url", "error", "blocked_reason", "remediation"):
        return isinstance(value, str | None)
    if key == "duration_seconds":
        return value is None or (
            isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        )
    if key == "next_steps":
        return value is None or (
            isinstance(value, list) and all(isinstance(step, str) for step in value)
        )
    if key == "commits":
        return value is None or (
            isinstance(value, list) and all(is_commit(commit) for commit in value)
        )
    if key == "cleanup_required":
        return isinstance(value, bool | None)
    return key != "artifacts" or value is None or isinstance(value, dict)


def is_commit(value: object) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("sha"), str)
        and isinstance(value.get("message", ""), str)
    )


def is_last(
    chars: list[str],
    visible: list[bool],
    end: int,
    result: tuple[int, int, dict[str, object]] | None,
) -> bool:
    """Does nothing follow but the result and the block, in this order?"""
    text = "".join(chars)
    start = end
    if result and result[0] >= end:
        if text[end : result[0]].strip(" \t\n"):
            return False
        start = result[1]
    rest = "".join(
        c if shown else OUT for c, shown in zip(chars[start:], visible[start:], strict=True)
    )
    menu = r"SUGGESTED NEXT STEPS:\n(?:  \[[1-4]\] [!-~][ -~]*\n){2,4}"
    status = r"STATUS: [ -~]*[!-~][ -~]*\n"
    block = re.search(rf"\n(---\n(?:{menu}|{status})---)(?:\n[ \t\n]*)?\Z", rest)
    if block:
        numbers = re.findall(r"^  \[(\d)\]", block[1], re.MULTILINE)
        if numbers == [str(n + 1) for n in range(len(numbers))]:
            rest = rest[: block.start()]
    return not rest.strip(" \t\n")
