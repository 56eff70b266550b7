"""Secrets taken out of a stream as it passes, also where one is split over two pieces of it.

This is against accidents: a program that means to tell a secret can write it in another way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain

MARK = b"[redacted]"
SHORTEST = 8  # a shorter value would be found where it is not meant
_MOST_HELD = 1024**2
_OPENING = 4  # bytes that are looked for first: tokens can be thousands of bytes long


class Redactor:
    """Puts a mark in the place of each secret. What might be the beginning of one is held back until that is known."""

    def __init__(self, secrets: Iterable[bytes]) -> None:
        self._secrets = sorted({secret for secret in secrets if len(secret) >= SHORTEST})
        self._longest = max(map(len, self._secrets), default=0)
        openings = b"|".join(re.escape(secret[:_OPENING]) for secret in self._secrets)
        self._openings = re.compile(b"(?=" + openings + b")")  # looks ahead, to find those that overlap
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """The next piece, as far as it can be shown."""
        if not self._secrets:
            return chunk
        text = self._held + chunk
        spans = [*self._spans(text)]
        cut = self._beginning_of_one(text)
        if spans and spans[-1][0] < cut < spans[-1][1]:
            cut = spans[-1][0] if spans[-1][1] - spans[-1][0] < _MOST_HELD else len(text)
        self._held = text[cut:]
        return _marked(text[:cut], [span for span in spans if span[1] <= cut])

    def rest(self) -> bytes:
        """What was held back, when nothing more will come."""
        text, self._held = self._held, b""
        return _marked(text, [*self._spans(text)])

    def _spans(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Where secrets are, in order; those that overlap are one."""
        start, reach = 0, 0
        for begin, end in sorted(span for secret in self._secrets for span in _places(text, secret)):
            if begin >= reach:
                if reach:
                    yield start, reach
                start = begin
            reach = max(reach, end)
        if reach:
            yield start, reach

    def _beginning_of_one(self, text: bytes) -> int:
        """Where the first end of the text begins that a secret could begin with."""
        first = max(0, len(text) - self._longest + 1)
        likely = [found.start() for found in self._openings.finditer(text, first)]
        last = range(max(first, len(text) - _OPENING + 1), len(text))
        for start in chain(likely, last):
            end = text[start:]
            if any(len(end) < len(secret) and secret.startswith(end) for secret in self._secrets):
                return start
        return len(text)


def _places(text: bytes, secret: bytes) -> Iterator[tuple[int, int]]:
    at = text.find(secret)
    while at >= 0:
        yield at, at + len(secret)
        at = text.find(secret, at + len(secret))


def _marked(text: bytes, spans: list[tuple[int, int]]) -> bytes:
    parts, done = [], 0
    for begin, end in spans:
        parts += [text[done:begin], MARK]
        done = end
    return b"".join((*parts, text[done:])) if parts else text
