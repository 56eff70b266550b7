"""Values that were lent to an agent, found again however they are written down.

Plain, in base64, in hexadecimal, as part of an address, inside JSON, and split over lines or by
punctuation. An agent that means to can still write a key in a way of its own; what it cannot do is
let one slip.
"""

from __future__ import annotations

import base64
import json
import re
import string
from collections.abc import Iterable
from urllib.parse import quote_from_bytes

REDACTED_NOTE = "[left out: it holds a key that was lent to an agent]"
# A shorter value would be found where it is not meant
MIN_SECRET_BYTES = 8
# What is shorter is often a word: it is taken out of logs, but refuses nobody's work
MIN_REFUSED_SECRET_BYTES = 12
MIN_SPLIT_SECRET_BYTES = 16
_NOISE = bytes(range(33)) + string.punctuation.encode() + b"\x7f"
_ESCAPED_SPACE = re.compile(rb"\\[nrt]")
_HEX_PREFIX = re.compile(rb"0x|\\x")
_NOT_HEX = bytes(sorted(set(range(256)) - set(b"0123456789abcdef")))


def list_encodings(value: bytes) -> frozenset[bytes]:
    """The value as people and programs write it down."""
    text = value.decode("utf-8", "surrogateescape")
    as_json = json.dumps(text)[1:-1].encode()
    in_hex = value.hex().encode()
    in_address = quote_from_bytes(value, safe="").encode()

    return frozenset(
        (value, as_json, in_hex, in_hex.upper(), in_address, *_list_base64_forms(value))
    )


def strip_whitespace(text: bytes) -> bytes:
    """A text without white space, escaped or not."""
    if b"\\" in text:
        text = _ESCAPED_SPACE.sub(b"", text)
    return text.translate(None, b" \t\r\n\v\f")


def _list_base64_forms(value: bytes) -> Iterable[bytes]:
    """What does not depend on the bytes around it, wherever in a longer text the value stands."""
    for before in range(3):
        whole = base64.b64encode(bytes(before) + value)
        form = whole[-(-before * 8 // 6) : (before + len(value)) * 8 // 6]
        yield from {form, form.translate(bytes.maketrans(b"+/", b"-_"))}


class SecretMatcher:
    """The values that agents of a project were lent; empty where there are none."""

    def __init__(self, values: Iterable[bytes]) -> None:
        long = {value for value in values if len(value) >= MIN_REFUSED_SECRET_BYTES}
        self._plain = sorted({form for value in long for form in list_encodings(value)})
        self._hex = sorted(value.hex().encode() for value in long)
        pressed = {form.translate(None, _NOISE) for form in self._plain}
        self._split = sorted(form for form in pressed if len(form) >= MIN_SPLIT_SECRET_BYTES)

    def __bool__(self) -> bool:
        return bool(self._plain)

    def redact(self, text: str) -> str:
        """A text that goes on record, or a note in its place where it holds one of them."""
        if self and self.has_secret(text.encode("utf-8", "surrogateescape")):
            return REDACTED_NOTE
        return text

    def has_secret(self, text: bytes) -> bool:
        """Whether one of them stands there, in one of its forms, whole or split."""
        if any(form in text for form in self._plain):
            return True
        if b"\\" in text:
            text = _ESCAPED_SPACE.sub(b"", text)

        pressed = text.translate(None, _NOISE)
        if any(form in pressed for form in self._split):
            return True

        digits = _HEX_PREFIX.sub(b"", text.lower()).translate(None, _NOT_HEX)
        return any(form in digits for form in self._hex)


NO_SECRETS = SecretMatcher(())
