"""Estimate offline how many tokens a text uses; an upper bound for ordinary text.

Vendors' tokenizers differ and are not all public, so this is a weighted count of words, letters,
digits, punctuation and scripts. The weights were fitted so that the estimate is not below the
largest of six public tokenizers on code, prose, CJK and base64, and at most twice that. Random
letters, rare ideographs and random punctuation can cost more.
"""

from __future__ import annotations

# Thousandths of a token. A class is a set of UTF-8 bytes; beyond ASCII only lead bytes, so that a
# character counts once.
_WEIGHTS = {
    # A-Z
    b"U": 550,
    # 0-9: some tokenizers split numbers into digits, and base64 has many
    b"d": 1750,
    # ASCII punctuation and control characters, in addition to the run below
    b"p": 150,
    b" ": 70,
    # LF
    b"n": 70,
    # TAB, CR
    b"t": 340,
    # Latin with marks
    b"L": 1300,
    # Greek, Cyrillic
    b"G": 1050,
    # Armenian, Hebrew, Arabic and other two-byte scripts
    b"S": 2210,
    # Indic, Thai, Vietnamese and other three-byte scripts
    b"I": 1480,
    # Non-ASCII punctuation, arrows, boxes
    b"Y": 950,
    # Kana, CJK punctuation
    b"K": 1250,
    # Ideographs
    b"H": 1440,
    # Hangul
    b"O": 1620,
    # Full-width forms, private use
    b"F": 1200,
    # Emoji and other four-byte characters
    b"M": 3500,
}
_LOWERCASE_LETTER = 270
# Each run of ASCII letters
_WORD_RUN = 420
# Each change from a lower-case to an upper-case letter
_CAMEL_CASE_STEP = 900
_PUNCTUATION_RUN = 1070
_LEAD_BYTE_CLASSES = (
    (0xCA, "L"),
    (0xD3, "G"),
    (0xDF, "S"),
    (0xE1, "I"),
    (0xE2, "Y"),
    (0xE3, "K"),
    (0xE9, "H"),
    (0xED, "O"),
    (0xEF, "F"),
)


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text; the result should never be less than the actual count.

    The sum over the lines of a text is at least the estimate of the text.
    """
    return -(-_estimate_millitokens(text.encode("utf-8", "surrogatepass")) // 1000)


def _estimate_millitokens(raw: bytes) -> int:
    classes = raw.translate(_BYTE_CLASSES)
    # Lower-case letters are counted by length difference, because they are so frequent
    left = classes.translate(None, b"l")
    singles = _LOWERCASE_LETTER * (len(classes) - len(left))
    singles += sum(weight * left.count(kind) for kind, weight in _WEIGHTS.items())
    runs = _WORD_RUN * _count_runs(raw, _LETTER_MASK)
    runs += _PUNCTUATION_RUN * _count_runs(raw, _PUNCTUATION_MASK)

    return singles + runs + _CAMEL_CASE_STEP * classes.count(b"lU")


def _count_runs(raw: bytes, mask: bytes) -> int:
    """Count the runs of marked bytes."""
    marked = raw.translate(mask)
    return marked.count(b" x") + marked.startswith(b"x")


def _classify_byte(byte: int) -> str:
    """Return a byte's class, which determines its weight in the estimate."""
    if byte >= 0xF0:
        return "M"
    if byte >= 0x80:
        # c: a continuation byte, which has no weight
        return next((kind for last, kind in _LEAD_BYTE_CLASSES if 0xC0 <= byte <= last), "c")

    character = chr(byte)
    if character.isalnum():
        if character.isdigit():
            return "d"
        if character.isupper():
            return "U"
        return "l"

    return {" ": " ", "\n": "n", "\t": "t", "\r": "t"}.get(character, "p")


_BYTE_CLASSES = bytes(ord(_classify_byte(byte)) for byte in range(256))
_LETTER_MASK = bytes(ord("x" if kind in b"lU" else " ") for kind in _BYTE_CLASSES)
_PUNCTUATION_MASK = bytes(ord("x" if kind in b"p" else " ") for kind in _BYTE_CLASSES)
