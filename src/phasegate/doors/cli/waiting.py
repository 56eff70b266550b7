"""What a command waits for, said on a terminal once it takes longer than a moment."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TextIO

TELL_EVERY_S = 1.0
_WIPE = "\r\x1b[2K"


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say what is waited for and for how long, in a line that is wiped at the end; only on a terminal."""
    stream = sys.stderr
    if stream is None or not stream.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield
        return
    ended = Event()
    teller = Thread(target=_tell, args=(stream, what, ended), daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


def _tell(stream: TextIO, what: str, ended: Event) -> None:
    began_s = time.monotonic()
    told = False
    while not ended.wait(TELL_EVERY_S):
        passed_s = int(time.monotonic() - began_s)
        _write(stream, f"{_WIPE}{what}  {passed_s // 60}:{passed_s % 60:02}")
        told = True
    if told:
        _write(stream, _WIPE)


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        return  # the terminal was closed
