"""An agent's output while it comes in: bounded memory, and no difference wherever the chunks part."""

from __future__ import annotations

from phasegate.rules.answer import Answer, parse_answer

DEFAULT_LIMIT_BYTES = 8 << 20


class AnswerBuffer:
    """Keeps the first and the last half of what it is fed, and says when something between them was dropped.

    The verdict and the result stand at the end, so the end is kept; what was dropped makes the answer cut off.
    """

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._half = max(limit_bytes // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()
        self._fed_bytes = 0

    @property
    def truncated(self) -> bool:
        return self._fed_bytes > 2 * self._half

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self._fed_bytes += len(chunk)
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:][-self._half :]
        # Cut only when there is twice too much: each byte is moved once, whatever the size of the chunks.
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def text(self) -> str:
        """What was kept, with a line in place of what was dropped. Bytes that are not UTF-8 are replaced."""
        if not self.truncated:
            return _decode(self._head + self._tail)
        # The end starts with a new line: half a line must not look like a whole one.
        _, _, end = bytes(self._tail[-self._half :]).partition(b"\n")
        dropped = self._fed_bytes - len(self._head) - len(end)
        return f"{_decode(self._head)}\n[{dropped} bytes were dropped here]\n{_decode(end)}"

    def parse(self, phase: str) -> Answer:
        """The answer in what was fed so far."""
        return parse_answer(self.text(), phase, truncated=self.truncated)


def _decode(data: bytes | bytearray) -> str:
    return data.decode("utf-8", "replace")
