"""Share one fsync between threads: the thread that completes a batch writes it for all."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

MAX_BATCH_WAIT_S = 0.0005
T = TypeVar("T")


class _Batch(Generic[T]):
    """Items that are written together, and the waiting threads, each with its own lock."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self.waiters: list[Lock] = []
        self.done = False
        self.error: BaseException | None = None


class GroupCommit(Generic[T]):
    """Write items in batches, in the order in which they arrive.

    The threads of the last batch are likely to return, so a batch waits briefly for the same number
    of items. The last thread to join writes the batch. If the others do not come, the first thread
    writes it after a time limit. After a failed batch nothing more is written, because later items
    must not be reported as durable.
    """

    def __init__(self, write_batch: Callable[[list[T]], None]) -> None:
        self._write_batch = write_batch
        self._mutex = Lock()
        self._pending_batch: _Batch[T] = _Batch()
        self._is_writing = False
        self._expected_items = 1
        self._failure: BaseException | None = None

    def submit(self, item: T) -> None:
        """Write an item with the next batch, and wait until it is durable. Raise the error of the
        write.
        """
        gate = _make_held_lock()
        with self._mutex:
            mine = self._pending_batch
            mine.items.append(item)
            first = not (self._is_writing or mine.waiters)
            mine.waiters.append(gate)
            leads = self._try_start(mine)

        if leads:
            self._commit_batch(mine)
        else:
            self._wait_for_batch(mine, gate, first)

        if mine.error:
            raise mine.error

    def _try_start(self, batch: _Batch[T], timed_out: bool = False) -> bool:
        """Return True if the caller must write the batch now.

        The batch then accepts no more items.
        """
        if (
            self._is_writing
            or self._pending_batch is not batch
            or not (timed_out or len(batch.items) >= self._expected_items)
        ):
            return False

        self._is_writing = True
        self._pending_batch = _Batch()

        return True

    def _wait_for_batch(self, batch: _Batch[T], waiter: Lock, is_first: bool) -> None:
        try:
            if not is_first:
                waiter.acquire()

            self._wait_or_commit(batch, waiter)
        except BaseException:
            # This thread was interrupted; the other threads must not wait for it
            self._wait_or_commit(batch, waiter)
            raise

    def _wait_or_commit(self, batch: _Batch[T], waiter: Lock) -> None:
        """Wait until the batch is written; write it if no other thread does."""
        late = False

        while not batch.done:
            with self._mutex:
                leads = self._try_start(batch, late)

            if leads:
                self._commit_batch(batch)
            else:
                late = not waiter.acquire(timeout=MAX_BATCH_WAIT_S)

    def _commit_batch(self, batch: _Batch[T]) -> None:
        try:
            if not self._failure:
                self._write_batch(batch.items)
        except BaseException as error:
            self._failure = error
        finally:
            self._release_waiters(batch)

    def _release_waiters(self, batch: _Batch[T]) -> None:
        """Wake the threads of a batch; they raise the error if the batch is not durable.

        The first thread of the next batch becomes responsible for its time limit.
        """
        with self._mutex:
            batch.done = True
            batch.error = self._failure
            following = self._pending_batch
            self._is_writing = False
            self._expected_items = len(batch.items) + len(following.items)
            for gate in (*batch.waiters, *following.waiters[:1]):
                if gate.locked():
                    gate.release()


def _make_held_lock() -> Lock:
    lock = Lock()
    lock.acquire()
    return lock
