"""Repeat a call in a separate thread while a block runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread


@contextmanager
def repeat_in_background(
    call: Callable[[], object], interval_s: float, thread_name: str
) -> Iterator[None]:
    """Repeat a call at an interval while the block runs; its end waits for the last call."""
    ended = Event()

    def run() -> None:
        while not ended.wait(interval_s):
            call()

    thread = Thread(target=run, name=thread_name, daemon=True)
    thread.start()

    try:
        yield
    finally:
        ended.set()
        thread.join()
