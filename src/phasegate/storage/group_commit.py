"""One fsync for many threads: whoever completes a batch writes out what all have brought."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

LONGEST_GATHERING_S = 0.0005
T = TypeVar("T")


class _Batch(Generic[T]):
    """Items that are written out together, and the threads that wait for it, each at a lock of its own."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self.waiting: list[Lock] = []
        self.done = False
        self.error: BaseException | None = None


class GroupCommit(Generic[T]):
    """Hands items to `write_out` in batches, in the order in which they came.

    The threads of the last batch are likely to come back: a batch waits a moment for as many. The last of them writes
    it; the first that waits looks at the clock, and writes it if the others do not come. After a failed batch nothing
    is written any more: what follows it must not claim to be durable.
    """

    def __init__(self, write_out: Callable[[list[T]], None]) -> None:
        self._write_out = write_out
        self._mutex = Lock()
        self._pending: _Batch[T] = _Batch()
        self._writing = False
        self._expected = 1
        self._failed: BaseException | None = None

    def submit(self, item: T) -> None:
        """Have an item written out. Raises what that raised."""
        gate = _taken()
        with self._mutex:
            mine = self._pending
            mine.items.append(item)
            first = not (self._writing or mine.waiting)
            mine.waiting.append(gate)
            leads = self._begins(mine)
        if leads:
            self._commit(mine)
        else:
            self._wait(mine, gate, first)
        if mine.error:
            raise mine.error

    def _begins(self, mine: _Batch[T], late: bool = False) -> bool:
        """Whether the batch is to be written now; then it takes no more items, and it is on the caller to write it."""
        if self._writing or self._pending is not mine or not (late or len(mine.items) >= self._expected):
            return False
        self._writing, self._pending = True, _Batch()
        return True

    def _wait(self, mine: _Batch[T], gate: Lock, first: bool) -> None:
        try:
            if not first:
                gate.acquire()
            self._see_through(mine, gate)
        except BaseException:  # interrupted: the others must not wait for us
            self._see_through(mine, gate)
            raise

    def _see_through(self, mine: _Batch[T], gate: Lock) -> None:
        """Return when the batch is done; write it if nobody else does."""
        late = False
        while not mine.done:
            with self._mutex:
                leads = self._begins(mine, late)
            if leads:
                self._commit(mine)
            else:
                late = not gate.acquire(timeout=LONGEST_GATHERING_S)

    def _commit(self, mine: _Batch[T]) -> None:
        try:
            if not self._failed:
                self._write_out(mine.items)
        except BaseException as error:
            self._failed = error
        finally:
            self._hand_over(mine)

    def _hand_over(self, mine: _Batch[T]) -> None:
        """Let the threads of a batch go on, with the error if it is not durable; the first of the next sees to that."""
        with self._mutex:
            mine.done, mine.error = True, self._failed
            following, self._writing = self._pending, False
            self._expected = len(mine.items) + len(following.items)
            for gate in (*mine.waiting, *following.waiting[:1]):
                if gate.locked():
                    gate.release()


def _taken() -> Lock:
    lock = Lock()
    lock.acquire()
    return lock
