"""Remove secrets from a stream, even if one is split over chunks, lines or by punctuation.

This prevents accidents: a program that wants to leak a secret can encode it in another way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from phasegate.core.agents.secrets import (
    HEX_PREFIX,
    MIN_SECRET_BYTES,
    MIN_SPLIT_SECRET_BYTES,
    NOISE,
    list_encodings,
    list_hex_forms,
    strip_hex_noise,
    strip_noise,
)

REDACTION_MARK = b"[redacted]"
_MAX_HELD_BYTES = 1024**2
# A text that may be a secret split over lines is held back up to this length.
_MAX_SPLIT_BYTES = 64 * 1024
# The first bytes are searched for first, since tokens can be thousands of bytes long.
_PREFIX_BYTES = 4
# A backslash is either part of an escaped space or noise, never both: one way to match a text
_NOISE_CLASS = re.escape(NOISE.replace(b"\\", b""))
_NOISE_PATTERN = rb"\\[nrt]|\\(?![nrt])|[" + _NOISE_CLASS + rb"]"
_GAP = rb"(?:" + _NOISE_PATTERN + rb")*"
_HEX_GAP = rb"(?:" + HEX_PREFIX + rb"|" + _NOISE_PATTERN + rb")*"
# The beginning of an escape at the end of a chunk
_MAX_ESCAPE_BYTES = 4
_CUT_ESCAPE = rb"(?:\\u?0{0,2}|0|#)\Z"


class _SplitForms(NamedTuple):
    """Forms of the secrets that are also found if something stands between their characters."""

    forms: tuple[bytes, ...]
    strip: Callable[[bytes], bytes]
    gap: bytes

    def find_spans(self, text: bytes) -> Iterator[tuple[int, int]]:
        stripped = self.strip(text)
        for form in self.forms:
            if form in stripped:
                for match in re.finditer(self.build_pattern(form), text, re.IGNORECASE):
                    yield match.span()

    def find_partial(self, text: bytes, max_bytes: int, min_match: int) -> int:
        """Return the first position from which the rest of the text may begin a form."""
        tails = {self.strip(text)[-max_bytes:]}
        cut_escape = re.search(_CUT_ESCAPE, text[-_MAX_ESCAPE_BYTES:])
        if cut_escape:
            tails.add(self.strip(text[: -len(cut_escape[0])])[-max_bytes:])

        prefixes = set()
        for tail in tails:
            for form in self.forms:
                length = _measure_partial_match(tail, form, min_match)
                if length:
                    prefixes.add(form[:length])

        starts = [len(text)]
        for prefix in prefixes:
            end = self.gap + rb"(?:" + _CUT_ESCAPE + rb")?\Z"
            match = re.search(self.build_pattern(prefix) + end, text, re.IGNORECASE)
            if match:
                starts.append(match.start())

        return min(starts)

    def build_pattern(self, form: bytes) -> bytes:
        return self.gap.join(re.escape(bytes([byte])) for byte in form)


class Redactor:
    """A stream filter that replaces each secret with a marker.

    Text that may be the beginning of a secret is held back until more of the stream is known.
    """

    def __init__(self, secrets: Iterable[bytes], *, min_partial_bytes: int = _PREFIX_BYTES) -> None:
        """Prepare the forms of the secrets.

        Text that ends with fewer than `min_partial_bytes` of a split secret is not held back.
        """
        values = [secret for secret in secrets if len(secret) >= MIN_SECRET_BYTES]
        encodings = {form for secret in values for form in list_encodings(secret)}
        self._secrets = sorted(encodings)
        stripped = {strip_noise(form) for form in encodings}
        digits = {form for secret in values for form in list_hex_forms(secret)}
        self._split_forms = (
            _SplitForms(_select_long(stripped), strip_noise, _GAP),
            _SplitForms(_select_long(digits), strip_hex_noise, _HEX_GAP),
        )
        self._min_partial_bytes = min_partial_bytes

        self._max_secret_bytes = max(map(len, self._secrets), default=0)
        prefixes = b"|".join(re.escape(secret[:_PREFIX_BYTES]) for secret in self._secrets)
        # A look-ahead also finds prefixes that overlap.
        self._prefix_pattern = re.compile(b"(?=" + prefixes + b")")
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Redact a chunk; hold back an end that may be the start of a secret."""
        if not self._secrets:
            return chunk

        text = self._held + chunk
        spans = [*self._find_spans(text)]
        cut = min(self._find_partial_secret(text), self._find_partial_split_secret(text))

        # Do not cut through a secret: hold it back, or redact it now if it is too long.
        if spans:
            start, end = spans[-1]
            if start < cut < end:
                cut = start if end - start < _MAX_HELD_BYTES else len(text)

        self._held = text[cut:]
        return _replace_spans(text[:cut], [span for span in spans if span[1] <= cut])

    def flush(self) -> bytes:
        """Return the text that was held back; call it at the end of the stream."""
        text = self._held
        self._held = b""
        return _replace_spans(text, [*self._find_spans(text)])

    def redact_text(self, text: str) -> str:
        """Redact a complete text."""
        data = text.encode("utf-8", "surrogateescape")
        return (self.feed(data) + self.flush()).decode("utf-8", "surrogateescape")

    def _find_spans(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Yield the spans of secrets in order; overlapping spans are merged."""
        merged_start = 0
        merged_end = 0
        unsplit = (span for secret in self._secrets for span in _find_occurrences(text, secret))

        split = (span for forms in self._split_forms for span in forms.find_spans(text))

        for start, end in sorted(chain(unsplit, split)):
            if start >= merged_end:
                if merged_end:
                    yield merged_start, merged_end

                merged_start = start

            merged_end = max(merged_end, end)

        if merged_end:
            yield merged_start, merged_end

    def _find_partial_secret(self, text: bytes) -> int:
        """Return the first position from which the rest of the text is the start of a secret."""
        first = max(0, len(text) - self._max_secret_bytes + 1)
        candidates = [match.start() for match in self._prefix_pattern.finditer(text, first)]
        last_bytes = range(max(first, len(text) - _PREFIX_BYTES + 1), len(text))

        for start in chain(candidates, last_bytes):
            rest = text[start:]
            for secret in self._secrets:
                if len(rest) < len(secret) and secret.startswith(rest):
                    return start

        return len(text)

    def _find_partial_split_secret(self, text: bytes) -> int:
        """Return the first position from which the rest may be a secret that is split by noise.

        Matches of a few bytes are ignored: they would delay too many lines.
        """
        first = max(0, len(text) - _MAX_SPLIT_BYTES)
        recent = text[first:]
        return first + min(
            forms.find_partial(recent, self._max_secret_bytes, self._min_partial_bytes)
            for forms in self._split_forms
        )


def _select_long(forms: Iterable[bytes]) -> tuple[bytes, ...]:
    return tuple(sorted(form for form in forms if len(form) >= MIN_SPLIT_SECRET_BYTES))


def _measure_partial_match(text: bytes, form: bytes, min_match: int) -> int:
    """Return how many bytes of a form the text ends with, or 0 if fewer than `min_match`."""
    start = text.find(form[:min_match], max(0, len(text) - len(form) + 1))
    while start >= 0:
        if form.startswith(text[start:]):
            return len(text) - start

        start = text.find(form[:min_match], start + 1)

    return 0


def _find_occurrences(text: bytes, secret: bytes) -> Iterator[tuple[int, int]]:
    start = text.find(secret)
    while start >= 0:
        end = start + len(secret)
        yield start, end
        start = text.find(secret, end)


def _replace_spans(text: bytes, spans: list[tuple[int, int]]) -> bytes:
    if not spans:
        return text

    parts = []
    previous_end = 0
    for start, end in spans:
        parts += [text[previous_end:start], REDACTION_MARK]
        previous_end = end

    return b"".join((*parts, text[previous_end:]))
