"""Find `<review` in other spellings.

It covers capitals, spaces or invisible characters, encodings and look-alike letters.

A second verdict in a spelling that does not count must still keep a PASS from counting, because it
was meant as a verdict.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

# Blanks, control and format characters, fillers, variation selectors, combining marks: characters
# that no reader sees as a letter.
INVISIBLE = (
    "\x00-\x20\x7f-\xa0\xad\u0300-\u036f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2"
    "\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f"
    "\u20d0-\u20f0\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_ANY_INVISIBLE = f"[{INVISIBLE}]*+"
_BRACKETS = "\uff1c\ufe64\u02c2\u1438\u2329\u3008\u27e8"


def _build_letter_class(letter: str) -> str:
    """Build a negated character class that matches a letter or any non-ASCII character.

    A class with the range up to U+10FFFF takes forty times as long to compile.
    """
    others = "".join(
        character for character in map(chr, range(0x80)) if character.lower() != letter
    )
    return f"[^{re.escape(others)}]"


# A non-ASCII character other than a bracket may stand for a letter; `spells_review` decides.
_LETTERS = _ANY_INVISIBLE.join(
    f"(?![{_BRACKETS}]){_build_letter_class(letter)}" for letter in "review"
)
# What follows the opening bracket: invisible characters, the slash of a closing tag, the letters.
REVIEW_PATTERN = rf"[{INVISIBLE}/\\\u2044\u2215\uff0f\uff3c]*+{_LETTERS}"

# Letters of other alphabets that look Latin. Full width, mathematical and circled letters are
# covered by NFKD normalization.
_HOMOGLYPHS = {"r": "гѓᴦ", "e": "еєҽ", "v": "ѵνᴠ", "i": "іıɩӏ", "w": "ԝѡᴡ"}
_HOMOGLYPH_TABLE = str.maketrans(
    {twin: letter for letter, twins in _HOMOGLYPHS.items() for twin in twins}
)
_ENCODED_BRACKETS = {
    "&": r"&(?:amp;)*+(?:[lL][tT]|#0*+60|#[xX]0*+3[cC]);?",
    "%": r"%(?:25)*+3[cC]",
    "\\": r"\\(?:u003[cC]|u\{0*+3[cC]\}|x3[cC])",
    **dict(zip(_BRACKETS, _BRACKETS, strict=True)),
}
_IGNORED_CHARACTERS = re.compile(f"[{INVISIBLE}/\\\\]+")


def spells_review(found: str) -> bool:
    """Return True if the letters of a match of `REVIEW_PATTERN` read as the word "review"."""
    if found.isascii():
        return True
    letters = unicodedata.normalize("NFKD", found).casefold().translate(_HOMOGLYPH_TABLE)
    return _IGNORED_CHARACTERS.sub("", letters).endswith("review")


def find_encoded_reviews(text: str) -> Iterator[int]:
    """Yield offsets of `review` after a bracket other than `<`: entity, escape or look-alike."""
    for first in _ENCODED_BRACKETS:
        # Searching for one character is twenty times faster than for a pattern.
        if first in text:
            yield from (
                match.start()
                for match in _compile_encoded_review(first).finditer(text)
                if spells_review(match[1])
            )


@cache
def _compile_encoded_review(first: str) -> re.Pattern[str]:
    """Compile the pattern for the word after an opening of this kind.

    It is compiled on first use, because that takes longer than scanning most answers.
    """
    # The letters are matched by lookahead, because one of these brackets may itself be in the place
    # of a letter.
    return re.compile(f"{_ENCODED_BRACKETS[first]}(?=({REVIEW_PATTERN}))")
