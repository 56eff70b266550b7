"""Find secrets of agents in their output, in any common encoding.

Plain, reversed, base64, hexadecimal, URL-encoded, in JSON, and split over lines or by punctuation.
This prevents accidental leaks; an agent that intends to can still encode a key in its own way.
"""

from __future__ import annotations

import base64
import json
import re
import string
from collections.abc import Iterable
from urllib.parse import quote, quote_from_bytes

REDACTED_NOTE = "[redacted: contains a secret of an agent]"
# Shorter values would match unrelated text
MIN_SECRET_BYTES = 8
# Shorter values are often words: they are redacted in logs, but do not reject changes
MIN_REFUSED_SECRET_BYTES = 12
MIN_SPLIT_SECRET_BYTES = 16
# Bytes that split a secret without changing it for a reader
NOISE = bytes(range(33)) + string.punctuation.encode() + b"\x7f"
_ESCAPED_SPACE = re.compile(rb"\\[nrt]")
_PERCENT_CODE = re.compile(r"%[0-9A-F]{2}")
# `0x73, 0x6b`, `\x73\x6b`, `\u0073\u006B`, `&#x73;&#x6b;`
HEX_PREFIX = rb"0x|\\x|\\u00|#x"
_HEX_PREFIX = re.compile(HEX_PREFIX)
_NOT_HEX = bytes(sorted(set(range(256)) - set(b"0123456789abcdef")))


def list_encodings(value: bytes) -> frozenset[bytes]:
    """Return the common encodings of a value."""
    text = value.decode("utf-8", "surrogateescape")
    as_json = json.dumps(text)[1:-1].encode()
    in_hex = value.hex().encode()
    url_encoded = quote_from_bytes(value, safe="")

    return frozenset(
        (
            value,
            value[::-1],
            as_json,
            as_json.replace(b"/", b"\\/"),
            # As .NET writes it
            as_json.replace(b"+", b"\\u002B"),
            in_hex,
            in_hex.upper(),
            value[::-1].hex().encode(),
            url_encoded.encode(),
            _PERCENT_CODE.sub(lambda code: code[0].lower(), url_encoded).encode(),
            quote_from_bytes(value, safe="/").encode(),
            quote(url_encoded, safe="").encode(),
            b"".join(b"%%%02X" % byte for byte in value),
            # Codes of letters, such as `&#115;&#107;` or `[115, 107]`
            b"".join(b"&#%d;" % byte for byte in value),
            b"".join(b"\\u%04x" % ord(letter) for letter in text),
            *_list_base64_forms(value),
            *_list_base64_forms(value[::-1]),
        )
    )


def list_hex_forms(value: bytes) -> tuple[bytes, bytes]:
    """Return the hexadecimal digits of a value, and those of the reversed value."""
    return value.hex().encode(), value[::-1].hex().encode()


def strip_noise(text: bytes) -> bytes:
    """Remove characters that may split a secret: white space, escaped or not, and punctuation."""
    if b"\\" in text:
        text = _ESCAPED_SPACE.sub(b"", text)
    return text.translate(None, NOISE)


def strip_hex_noise(text: bytes) -> bytes:
    """Remove characters that may split hexadecimal digits, and lower the case of the digits."""
    text = text.lower()
    if any(prefix in text for prefix in (b"0x", b"\\x", b"\\u00", b"#x")):
        text = _HEX_PREFIX.sub(b"", text)
    return strip_noise(text)


def _list_base64_forms(value: bytes) -> Iterable[bytes]:
    """Yield the base64 characters of a value that do not depend on surrounding bytes."""
    for offset in range(3):
        whole = base64.b64encode(bytes(offset) + value)
        encoded = whole[-(-offset * 8 // 6) : (offset + len(value)) * 8 // 6]
        yield from {encoded, encoded.translate(bytes.maketrans(b"+/", b"-_"))}


class SecretMatcher:
    """Matcher for the secrets shared with agents of a project; falsy if there are none."""

    def __init__(self, values: Iterable[bytes]) -> None:
        long = {value for value in values if len(value) >= MIN_REFUSED_SECRET_BYTES}
        self._plain = sorted({form for value in long for form in list_encodings(value)})
        self._hex = sorted({form for value in long for form in list_hex_forms(value)})
        compact = {form.translate(None, NOISE) for form in self._plain}
        self._split = sorted(form for form in compact if len(form) >= MIN_SPLIT_SECRET_BYTES)

    def __bool__(self) -> bool:
        return bool(self._plain)

    def redact(self, text: str) -> str:
        """Return the text for the journal, or a note in its place if it contains a secret."""
        if self and self.has_secret(text.encode("utf-8", "surrogateescape")):
            return REDACTED_NOTE
        return text

    def has_secret(self, text: bytes) -> bool:
        """Return whether a secret is in the text, in any encoding, whole or split."""
        if any(form in text for form in self._plain):
            return True

        compact = strip_noise(text)
        if any(form in compact for form in self._split):
            return True

        digits = _HEX_PREFIX.sub(b"", text.lower()).translate(None, _NOT_HEX)
        return any(form in digits for form in self._hex)


NO_SECRETS = SecretMatcher(())
