"""Secrets taken out of a stream as it passes, also where one is split over two pieces of it or over
several lines.

This is against accidents: a program that means to tell a secret can write it in another way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from phasegate.core.agents.secrets import (
    MIN_SECRET_BYTES,
    MIN_SPLIT_SECRET_BYTES,
    list_encodings,
    strip_whitespace,
)

REDACTION_MARK = b"[redacted]"
_MAX_HELD_BYTES = 1024**2
# Of a text that may be a secret split over lines: what is longer is let go
_MAX_SPLIT_BYTES = 64 * 1024
# Bytes that are looked for first: tokens can be thousands of bytes long
_PREFIX_BYTES = 4
_GAP = rb"(?:\\[nrt]|\s)*"


class Redactor:
    """Puts a mark in the place of each secret.

    What might be the beginning of one is held back until that is known.
    """

    def __init__(self, secrets: Iterable[bytes]) -> None:
        long = {secret for secret in secrets if len(secret) >= MIN_SECRET_BYTES}
        self._secrets = sorted({form for secret in long for form in list_encodings(secret)})
        self._split_forms = sorted(
            {
                form
                for form in map(strip_whitespace, self._secrets)
                if len(form) >= MIN_SPLIT_SECRET_BYTES
            }
        )

        self._max_secret_bytes = max(map(len, self._secrets), default=0)
        openings = b"|".join(re.escape(secret[:_PREFIX_BYTES]) for secret in self._secrets)
        # Looks ahead, to find those that overlap
        self._prefix_pattern = re.compile(b"(?=" + openings + b")")
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """The next piece, as far as it can be shown."""
        if not self._secrets:
            return chunk

        text = self._held + chunk
        spans = [*self._find_spans(text)]
        cut = min(self._find_partial_secret(text), self._find_partial_split_secret(text))

        if spans and spans[-1][0] < cut < spans[-1][1]:
            if spans[-1][1] - spans[-1][0] < _MAX_HELD_BYTES:
                cut = spans[-1][0]
            else:
                cut = len(text)

        self._held = text[cut:]
        return _replace_spans(text[:cut], [span for span in spans if span[1] <= cut])

    def flush(self) -> bytes:
        """What was held back, when nothing more will come."""
        text = self._held
        self._held = b""
        return _replace_spans(text, [*self._find_spans(text)])

    def redact_text(self, text: str) -> str:
        """A text that is there as a whole, without secrets."""
        data = text.encode("utf-8", "surrogateescape")
        return (self.feed(data) + self.flush()).decode("utf-8", "surrogateescape")

    def _find_spans(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Where secrets are, in order; those that overlap are one."""
        start = 0
        reach = 0
        whole = (span for secret in self._secrets for span in _find_occurrences(text, secret))

        for begin, end in sorted(chain(whole, self._find_split_spans(text))):
            if begin >= reach:
                if reach:
                    yield start, reach

                start = begin

            reach = max(reach, end)

        if reach:
            yield start, reach

    def _find_split_spans(self, text: bytes) -> Iterator[tuple[int, int]]:
        pressed = strip_whitespace(text)
        if len(pressed) == len(text):
            return
        for form in self._split_forms:
            if form in pressed:
                yield from (found.span() for found in re.finditer(_build_gap_pattern(form), text))

    def _find_partial_secret(self, text: bytes) -> int:
        """Where the first end of the text begins that a secret could begin with."""
        first = max(0, len(text) - self._max_secret_bytes + 1)
        likely = [found.start() for found in self._prefix_pattern.finditer(text, first)]
        last = range(max(first, len(text) - _PREFIX_BYTES + 1), len(text))
        for start in chain(likely, last):
            end = text[start:]
            if any(len(end) < len(secret) and secret.startswith(end) for secret in self._secrets):
                return start

        return len(text)

    def _find_partial_split_secret(self, text: bytes) -> int:
        """The same for one that goes on behind white space.

        A few bytes are too little to keep a line waiting.
        """
        first = max(0, len(text) - _MAX_SPLIT_BYTES)
        pressed = strip_whitespace(text[first:].removesuffix(b"\\"))[-self._max_secret_bytes :]
        found = [_measure_partial_match(pressed, form) for form in self._split_forms]
        openings = {
            form[:length] for form, length in zip(self._split_forms, found, strict=True) if length
        }
        places = (
            re.search(_build_gap_pattern(opening) + _GAP + rb"\\?\Z", text[first:])
            for opening in openings
        )

        return min((first + place.start() for place in places if place), default=len(text))


def _measure_partial_match(text: bytes, form: bytes) -> int:
    """How much of a form the text ends with; 0 where that is too little to say."""
    at = text.find(form[:_PREFIX_BYTES], max(0, len(text) - len(form) + 1))
    while at >= 0:
        if form.startswith(text[at:]):
            return len(text) - at

        at = text.find(form[:_PREFIX_BYTES], at + 1)

    return 0


def _build_gap_pattern(form: bytes) -> bytes:
    return _GAP.join(re.escape(form[at : at + 1]) for at in range(len(form)))


def _find_occurrences(text: bytes, secret: bytes) -> Iterator[tuple[int, int]]:
    at = text.find(secret)
    while at >= 0:
        yield at, at + len(secret)
        at = text.find(secret, at + len(secret))


def _replace_spans(text: bytes, spans: list[tuple[int, int]]) -> bytes:
    parts = []
    done = 0
    for begin, end in spans:
        parts += [text[done:begin], REDACTION_MARK]
        done = end

    if parts:
        return b"".join((*parts, text[done:]))

    return text
