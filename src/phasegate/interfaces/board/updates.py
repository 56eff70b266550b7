"""One look at every journal, for all browsers.

That something moved is told, merged; who wants it fetches it.

Each event to each client would drown both: 50 clients and 1 000 events a second were 88 % lost. So
a stream says that something is new, at most four times a second, and the newest state is what the
page asks for then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from threading import Event, Thread

from phasegate.engine.views.follow import ChangeDetector
from phasegate.engine.views.overview import StoreReader, open_reader
from phasegate.errors import PhasegateError

POLL_INTERVAL_S = 0.1
MIN_EVENT_INTERVAL_S = 0.25
KEEPALIVE_INTERVAL_S = 15.0
ListRepositories = Callable[[], Mapping[str, Path]]


class UpdateHub:
    """Looks at the journals of all repositories, and wakes the streams of those that something
    moved for.
    """

    def __init__(self, list_repositories: ListRepositories) -> None:
        self._list_repositories = list_repositories
        # Of a feature, a repository, or everything: when it moved
        self._revisions: dict[tuple[str, str], int] = {}
        self._counter = 0
        self._stopped = Event()
        self._change_event = asyncio.Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Begin to look; called inside of the event loop that the streams live in."""
        loop = asyncio.get_running_loop()
        self._thread = Thread(
            target=self._poll_journals, args=(loop,), name="board hub", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def get_revision(self, repository: str = "", feature: str = "") -> int:
        """A number that grows when a feature, a repository or anything at all has moved."""
        return self._revisions.get((repository, feature), 0)

    async def stream_changes(
        self, repository: str, feature: str, last_event_id: str
    ) -> AsyncIterator[bytes]:
        """The stream of one page. `seen` is the last id that it got, from a stream before."""
        told = self.get_revision(repository, feature)
        yield b"retry: 500\n\n" if last_event_id in ("", str(told)) else _encode_change_event(told)

        while True:
            waiting = self._change_event
            mark = self.get_revision(repository, feature)

            if mark != told:
                told = mark
                yield _encode_change_event(told)
                await asyncio.sleep(MIN_EVENT_INTERVAL_S)
                continue

            try:
                await asyncio.wait_for(waiting.wait(), KEEPALIVE_INTERVAL_S)
            except TimeoutError:
                yield b": still here\n\n"

    def _poll_journals(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own, since SQLite and locks are files."""
        open_: dict[str, tuple[Path, StoreReader, ChangeDetector]] = {}

        while not self._stopped.wait(POLL_INTERVAL_S):
            places = self._list_repositories()
            for name, root in places.items():
                try:
                    if name not in open_ and (reader := open_reader(str(root))) is not None:
                        open_[name] = (root, reader, ChangeDetector(reader))

                    if name in open_:
                        moved = open_[name][2].find_changed_features()
                    else:
                        moved = set()
                except PhasegateError:
                    # Its page says what is wrong with it
                    open_.pop(name, None)
                    continue

                if moved:
                    loop.call_soon_threadsafe(self._publish, name, moved)

            for name in [name for name, (root, *_) in open_.items() if places.get(name) != root]:
                open_.pop(name)[1].__exit__()

        for _, reader, _ in open_.values():
            reader.__exit__()

    def _publish(self, repository: str, features: set[str]) -> None:
        self._counter += 1
        for place in (("", ""), (repository, ""), *((repository, feature) for feature in features)):
            self._revisions[place] = self._counter
        waiting = self._change_event
        self._change_event = asyncio.Event()
        waiting.set()


def _encode_change_event(revision: int) -> bytes:
    return f"id: {revision}\nevent: changed\ndata: {revision}\n\n".encode()
