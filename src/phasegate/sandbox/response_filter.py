"""Remove keys from the HTTP response of an upstream host, before a job gets it.

A server that echoes parts of a request would hand the key to the job. The response is sent on
without chunks and without a length, so that its text can be searched and replaced; its end is the
end of the connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from phasegate.sandbox.redact import Redactor

_MAX_HEAD_BYTES = 256 * 1024
_MAX_CHUNK_LINE_BYTES = 4096
_FRAMING_HEADERS = (b"transfer-encoding", b"content-length", b"connection", b"keep-alive")
_STATUSES_WITHOUT_BODY = (204, 304)
# Clients disagree about a line feed inside a line, and about spaces before the colon.
_HEADER_LINE = re.compile(rb"([!#-'*+.0-9A-Z^-z|~-]+):([^\r\n\0]*)")
_GZIP_BYTE = b"\x1f"
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
# Header -> the values with which the body can be searched
_SEARCHABLE = {b"content-encoding": (b"identity",), b"transfer-encoding": (b"chunked", b"identity")}


class ResponseRefused(ValueError):
    """A response that cannot be searched: it is malformed, or compressed although we forbade it."""


class ResponseFilter:
    """A stream filter for one response."""

    def __init__(self, keys: Iterable[bytes], *, is_head_request: bool) -> None:
        self._keys = tuple(keys)
        # A server can send the key letter by letter
        self._redactor = Redactor(self._keys, min_partial_bytes=1)
        self._is_head_request = is_head_request
        self._buffer = b""
        self._in_body = False
        self._has_body = False
        # Set for a chunked body: the rest of the current chunk in bytes; -1 before its first line
        self._chunk_left: int | None = None
        # Set for a body with a length: its rest in bytes
        self._length_left: int | None = None
        self._ended = False

    @property
    def has_ended(self) -> bool:
        """True if the last byte has arrived, by the length or the chunks of the response."""
        return self._in_body and (self._ended or self._length_left == 0)

    @property
    def may_end(self) -> bool:
        """True if the connection may end now without cutting the response."""
        is_until_close = self._chunk_left is None and self._length_left is None
        return self._in_body and (self.has_ended or is_until_close)

    def feed(self, data: bytes) -> bytes:
        """Add received bytes; return the next bytes that the job may see."""
        self._buffer += data
        seen = b""
        while not self._in_body and b"\r\n\r\n" in self._buffer:
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            seen += self._read_head(head)

        if not self._in_body:
            if len(self._buffer) > _MAX_HEAD_BYTES:
                raise ResponseRefused("its head is too long")
            return seen

        body = self._take_body()
        # Compressed although the head does not say so; no text begins with this byte
        if not self._has_body and body.startswith(_GZIP_BYTE):
            raise ResponseRefused("it is compressed")

        self._has_body = self._has_body or bool(body)
        return seen + self._redactor.feed(body)

    def flush(self) -> bytes:
        """Return the buffered rest; call it at the end of the connection."""
        return self._redactor.flush()

    def _read_head(self, head: bytes) -> bytes:
        """Parse the head of a response; return it redacted, without keep-alive."""
        first, *lines = head.split(b"\r\n")
        words = first.split()
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise ResponseRefused("it is not HTTP")

        status = int(words[1])
        headers = _parse_headers(lines)

        # An interim response, such as 100 Continue: the real one follows.
        if 100 <= status < 200:
            return self._redact_head([first, *lines])

        self._in_body = True
        if self._is_head_request or status in _STATUSES_WITHOUT_BODY:
            self._length_left = 0
        elif headers.get(b"transfer-encoding") == b"chunked":
            self._chunk_left = -1
        elif headers.get(b"content-length", b"").isdigit():
            self._length_left = int(headers[b"content-length"])

        kept = [line for line in lines if line.partition(b":")[0].lower() not in _FRAMING_HEADERS]
        return self._redact_head([first, *kept, b"Connection: close"])

    def _redact_head(self, lines: list[bytes]) -> bytes:
        redactor = Redactor(self._keys)
        return redactor.feed(b"\r\n".join(lines)) + redactor.flush() + b"\r\n\r\n"

    def _take_body(self) -> bytes:
        if self._chunk_left is not None:
            return self._take_chunks()

        body = self._buffer
        self._buffer = b""
        if self._length_left is not None:
            body = body[: self._length_left]
            self._length_left -= len(body)
        return body

    def _take_chunks(self) -> bytes:
        """Take the available chunks of the body from the buffer."""
        body = b""
        while self._buffer and not self._ended:
            if self._chunk_left == -1 and not self._read_chunk_size():
                break

            assert self._chunk_left is not None
            part = self._buffer[: self._chunk_left]
            body += part
            self._buffer = self._buffer[len(part) :]
            self._chunk_left -= len(part)
            if self._chunk_left == 0:
                self._chunk_left = -1

        return body

    def _read_chunk_size(self) -> bool:
        """Read the size line of the next chunk.

        Return False if the line is incomplete, or if the chunk is the last one.
        """
        # The line feed after the previous chunk comes first.
        text = self._buffer.removeprefix(b"\r\n")
        line, found, rest = text.partition(b"\n")
        if not found:
            if len(text) > _MAX_CHUNK_LINE_BYTES:
                raise ResponseRefused("a chunk has no size")
            return False

        digits = line.partition(b";")[0].strip()
        if not _CHUNK_SIZE.fullmatch(digits):
            raise ResponseRefused("a chunk has no valid size")

        size = int(digits, 16)
        self._buffer = rest
        self._chunk_left = size
        self._ended = size == 0
        return size > 0


def _parse_headers(lines: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return the headers by name; refuse those that make the body impossible to search."""
    headers = {}
    for line in lines:
        found = _HEADER_LINE.fullmatch(line)
        if found is None:
            raise ResponseRefused("its head is malformed")

        name = found[1].lower()
        value = found[2].strip().lower()
        if value not in _SEARCHABLE.get(name, (value,)):
            raise ResponseRefused("it is compressed")

        headers[name] = value

    return headers
