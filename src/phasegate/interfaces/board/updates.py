"""One look at every journal, for all browsers: that something moved is told, merged; who wants it fetches it.

Each event to each client would drown both: 50 clients and 1 000 events a second were 88 % lost. So a stream says that
something is new, at most four times a second, and the newest state is what the page asks for then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from threading import Event, Thread

from phasegate.engine.views.follow import Pulse
from phasegate.engine.views.overview import Reader, open_reader
from phasegate.errors import PhasegateError

LOOK_EVERY_S, SAY_EVERY_S, STILL_HERE_S = 0.1, 0.25, 15.0
Places = Callable[[], Mapping[str, Path]]


class Hub:
    """Looks at the journals of all repositories, and wakes the streams of those that something moved for."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._marks: dict[tuple[str, str], int] = {}  # of a feature, a repository, or everything: when it moved
        self._counter = 0
        self._ended = Event()
        self._moved = asyncio.Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Begin to look; called inside of the event loop that the streams live in."""
        loop = asyncio.get_running_loop()
        self._thread = Thread(target=self._look, args=(loop,), name="board hub", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def mark(self, repository: str = "", feature: str = "") -> int:
        """A number that grows when a feature, a repository or anything at all has moved."""
        return self._marks.get((repository, feature), 0)

    async def changes(self, repository: str, feature: str, seen: str) -> AsyncIterator[bytes]:
        """The stream of one page. `seen` is the last id that it got, from a stream before."""
        told = self.mark(repository, feature)
        yield b"retry: 500\n\n" if seen in ("", str(told)) else _changed(told)
        while True:
            waiting = self._moved
            mark = self.mark(repository, feature)
            if mark != told:
                told = mark
                yield _changed(told)
                await asyncio.sleep(SAY_EVERY_S)
                continue
            try:
                await asyncio.wait_for(waiting.wait(), STILL_HERE_S)
            except TimeoutError:
                yield b": still here\n\n"

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own, since SQLite and locks are files."""
        open_: dict[str, tuple[Path, Reader, Pulse]] = {}
        while not self._ended.wait(LOOK_EVERY_S):
            places = self._places()
            for name, root in places.items():
                try:
                    if name not in open_ and (reader := open_reader(str(root))) is not None:
                        open_[name] = (root, reader, Pulse(reader))
                    moved = open_[name][2].moved() if name in open_ else set()
                except PhasegateError:  # its page says what is wrong with it
                    open_.pop(name, None)
                    continue
                if moved:
                    loop.call_soon_threadsafe(self._tell, name, moved)
            for name in [name for name, (root, *_) in open_.items() if places.get(name) != root]:
                open_.pop(name)[1].__exit__()
        for _, reader, _ in open_.values():
            reader.__exit__()

    def _tell(self, repository: str, features: set[str]) -> None:
        self._counter += 1
        for place in (("", ""), (repository, ""), *((repository, feature) for feature in features)):
            self._marks[place] = self._counter
        waiting, self._moved = self._moved, asyncio.Event()
        waiting.set()


def _changed(mark: int) -> bytes:
    return f"id: {mark}\nevent: changed\ndata: {mark}\n\n".encode()
