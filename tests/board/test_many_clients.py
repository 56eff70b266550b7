"""Fifty browsers and a thousand events a second: nobody is left behind, and the board stays small."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from threading import Event

import pytest

from support.board_client import BoardClient
from support.feature_run import DESCRIPTION, SLUG, TYPE, make_feature_run

CLIENTS, EVENTS, SECONDS = 50, 1_000, 5
LONGEST_S = (
    1.0  # what a page promises: of the median, so that one breath of the machine does not decide it
)
WRITES = """
import sys, time
from pathlib import Path
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.storage.rows import NewEvent
project = open_project(Path(sys.argv[1]))
with open_project_store(project) as store:
    for second in range(int(sys.argv[3])):
        until = time.monotonic() + 1
        for _ in range(10):
            store.append_unconditionally(sys.argv[2], project.now(), [NewEvent("noted", b"{}")] * (int(sys.argv[4]) // 10))
            print(store.chain_head().entries, time.time())
        time.sleep(max(0, until - time.monotonic()))
"""


Heard = list[tuple[int, float]]


def listen(board: BoardClient, listening: Event) -> Heard:
    """The ids that one browser heard of, and when."""
    connection = HTTPConnection("127.0.0.1", board.port, timeout=5)
    with closing(connection):
        return _heard(connection, board, listening)


def _heard(connection: HTTPConnection, board: BoardClient, listening: Event) -> Heard:
    connection.request(
        "GET",
        f"/events?at=repo&feature={SLUG}",
        headers={"Host": board.host, "Cookie": board.cookie},
    )
    stream, heard = connection.getresponse(), Heard()
    assert stream.readline().startswith(b"retry")
    listening.set()
    while True:
        try:
            line = stream.readline()
        except TimeoutError:
            return heard
        if line.startswith(b"id: "):
            heard.append((int(line[4:]), time.time()))


def delays(written: Heard, clients: list[Heard]) -> list[float]:
    """For each batch, until the last of the browsers had heard that something is new."""
    return [
        max(next(at for _, at in heard if at >= then) for heard in clients) - then
        for _, then in written
    ]


def resident_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


@pytest.mark.demand("X2.b")
def test_fifty_browsers_hear_of_the_last_of_a_thousand_events_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = make_feature_run(tmp_path)
    run.run("start", TYPE, DESCRIPTION)
    with BoardClient(run.root) as board, ThreadPoolExecutor(CLIENTS) as pool:
        board.get(f"/at/repo/feature/{SLUG}")
        before, marks = resident_kb(board.process.pid), [Event() for _ in range(CLIENTS)]
        clients = [pool.submit(listen, board, mark) for mark in marks]
        assert all(mark.wait(60) for mark in marks)
        argv = [sys.executable, "-c", WRITES, str(run.root), SLUG, str(SECONDS), str(EVENTS)]
        said = subprocess.run(
            argv, capture_output=True, text=True, check=True, timeout=300
        ).stdout.split()
        found = [client.result() for client in clients]  # each ends after five seconds of silence
        page, after = board.get(f"/at/repo/feature/{SLUG}").text, resident_kb(board.process.pid)
    written = [
        (int(position), float(then)) for position, then in zip(said[::2], said[1::2], strict=True)
    ]
    assert len({heard[-1][0] for heard in found}) == 1  # all of them heard of the same last change
    assert f"{written[-1][0]} entries" in page  # and what they fetch then lacks nothing
    assert all([*heard] == sorted(heard) for heard in found)
    assert all(
        1 <= len(heard) <= SECONDS * 4 * 3 for heard in found
    )  # merged: at most four a second each
    took = sorted(delays(written, found))
    print(
        f"{CLIENTS} clients, {EVENTS} events a second: all heard after {took[len(took) // 2]:.2f} s (median), ",
        end="",
    )
    print(f"{took[-1]:.2f} s at the worst; {after - before} kB more")
    assert took[len(took) // 2] < LONGEST_S
    assert after - before < 100_000
