"""One fsync for many threads: whoever comes first writes out what all have brought."""

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
    """Hands items to `write_out` in batches, in the order in which they were prepared.

    `write_out` gets the items and a function, to be called when they are durable: then the threads that brought them go
    on, while it may finish what nobody waits for. The next batch begins when it has returned. After a failed batch
    nothing is written any more: what follows it must not claim to be durable.
    """

    def __init__(self, write_out: Callable[[list[T], Callable[[], None]], None]) -> None:
        self._write_out = write_out
        self._mutex = Lock()
        self._pending: _Batch[T] = _Batch()
        self._leading = False  # a thread gathers or writes a batch
        self._last_size = 1
        self._gathered = _taken()
        self._failed: BaseException | None = None

    def submit(self, prepare: Callable[[], T]) -> None:
        """Prepare an item, one thread at a time, and have it made durable. Raises what that raised."""
        with self._mutex:
            mine = self._pending
            mine.items.append(prepare())
            leads, self._leading = not self._leading, True
            gate = _taken()
            if not leads:
                mine.waiting.append(gate)
                if len(mine.items) == self._last_size and self._gathered.locked():
                    self._gathered.release()
        if leads or self._waited_to_lead(mine, gate):
            self._lead(mine)
        if mine.error:
            raise mine.error

    def _waited_to_lead(self, mine: _Batch[T], gate: Lock) -> bool:
        """Wait until the batch is done, or until it is this thread's turn to write it."""
        try:
            gate.acquire()
        except BaseException:  # interrupted: the others must not wait for us
            with self._mutex:
                chosen = gate not in mine.waiting and not mine.done
            if chosen:
                self._lead(mine)
            raise
        return not mine.done

    def _lead(self, mine: _Batch[T]) -> None:
        """Wait a moment for the threads of the last batch, as they are likely to come back; then write."""
        try:
            if len(mine.items) < self._last_size:
                self._gathered.acquire(timeout=LONGEST_GATHERING_S)
        finally:
            with self._mutex:
                self._pending = _Batch()
                self._gathered.acquire(blocking=False)
            self._commit(mine)

    def _commit(self, mine: _Batch[T]) -> None:
        try:
            if not self._failed:
                self._write_out(mine.items, lambda: self._release(mine))
        except BaseException as error:
            self._failed = error
        finally:
            self._release(mine)
            self._hand_over(len(mine.items))

    def _release(self, mine: _Batch[T]) -> None:
        """Let the threads of a batch go on: with the error, if it is not durable."""
        with self._mutex:
            if mine.done:
                return
            mine.done, mine.error = True, self._failed
        for gate in mine.waiting:
            gate.release()

    def _hand_over(self, size: int) -> None:
        with self._mutex:
            self._last_size = size
            following = self._pending.waiting
            if following:
                following.pop(0).release()  # the next to lead
            else:
                self._leading = False


def _taken() -> Lock:
    lock = Lock()
    lock.acquire()
    return lock
