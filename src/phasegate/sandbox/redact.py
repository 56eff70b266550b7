"""Secrets taken out of a stream as it passes, also where one is split over two pieces of it or over several lines.

This is against accidents: a program that means to tell a secret can write it in another way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from phasegate.core.agents.secrets import SHORTEST, SHORTEST_SPLIT, without_space, written_forms

MARK = b"[redacted]"
_MOST_HELD = 1024**2
_MOST_SPLIT = 64 * 1024  # of a text that may be a secret split over lines: what is longer is let go
_OPENING = 4  # bytes that are looked for first: tokens can be thousands of bytes long
_GAP = rb"(?:\\[nrt]|\s)*"


class Redactor:
    """Puts a mark in the place of each secret. What might be the beginning of one is held back until that is known."""

    def __init__(self, secrets: Iterable[bytes]) -> None:
        long = {secret for secret in secrets if len(secret) >= SHORTEST}
        self._secrets = sorted({form for secret in long for form in written_forms(secret)})
        self._split = sorted({form for form in map(without_space, self._secrets) if len(form) >= SHORTEST_SPLIT})
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
        cut = min(self._beginning_of_one(text), self._beginning_of_a_split_one(text))
        if spans and spans[-1][0] < cut < spans[-1][1]:
            cut = spans[-1][0] if spans[-1][1] - spans[-1][0] < _MOST_HELD else len(text)
        self._held = text[cut:]
        return _marked(text[:cut], [span for span in spans if span[1] <= cut])

    def rest(self) -> bytes:
        """What was held back, when nothing more will come."""
        text, self._held = self._held, b""
        return _marked(text, [*self._spans(text)])

    def whole(self, text: str) -> str:
        """A text that is there as a whole, without secrets."""
        data = text.encode("utf-8", "surrogateescape")
        return (self.feed(data) + self.rest()).decode("utf-8", "surrogateescape")

    def _spans(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Where secrets are, in order; those that overlap are one."""
        start, reach = 0, 0
        whole = (span for secret in self._secrets for span in _places(text, secret))
        for begin, end in sorted(chain(whole, self._split_places(text))):
            if begin >= reach:
                if reach:
                    yield start, reach
                start = begin
            reach = max(reach, end)
        if reach:
            yield start, reach

    def _split_places(self, text: bytes) -> Iterator[tuple[int, int]]:
        pressed = without_space(text)
        if len(pressed) == len(text):
            return
        for form in self._split:
            if form in pressed:
                yield from (found.span() for found in re.finditer(_with_gaps(form), text))

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

    def _beginning_of_a_split_one(self, text: bytes) -> int:
        """The same for one that goes on behind white space. A few bytes are too little to keep a line waiting."""
        first = max(0, len(text) - _MOST_SPLIT)
        pressed = without_space(text[first:].removesuffix(b"\\"))[-self._longest :]
        found = [_longest_opening(pressed, form) for form in self._split]
        openings = {form[:length] for form, length in zip(self._split, found, strict=True) if length}
        places = (re.search(_with_gaps(opening) + _GAP + rb"\\?\Z", text[first:]) for opening in openings)
        return min((first + place.start() for place in places if place), default=len(text))


def _longest_opening(text: bytes, form: bytes) -> int:
    """How much of a form the text ends with; 0 where that is too little to say."""
    at = text.find(form[:_OPENING], max(0, len(text) - len(form) + 1))
    while at >= 0:
        if form.startswith(text[at:]):
            return len(text) - at
        at = text.find(form[:_OPENING], at + 1)
    return 0


def _with_gaps(form: bytes) -> bytes:
    return _GAP.join(re.escape(form[at : at + 1]) for at in range(len(form)))


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
