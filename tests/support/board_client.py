"""A board in a process of its own, and a browser that is played by hand."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import urlencode

Headers = Sequence[tuple[str, str]]
LONGER_THAN_A_STOP_S = 180  # which the board gives 120 s


class Answer(NamedTuple):
    """What the board answered."""

    status: int
    headers: dict[str, str]
    text: str


class BoardClient:
    """`phasegate board`, entered by its link as a browser enters it."""

    def __init__(self, root: Path, *options: str, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "phasegate", "board", "--port", "0", *options],
            cwd=root,
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)(/enter\?token=\S+)", line)
        assert found is not None, line + self.process.stdout.read()
        self.link, self.port, self.token_path = found[0], int(found[1]), found[2]
        self.host = f"127.0.0.1:{self.port}"
        self.cookie = ""

    def __enter__(self) -> Self:
        try:
            entered = self.raw("GET", self.token_path, [("Host", self.host)])
            self.cookie = entered.headers["set-cookie"].partition(";")[0]
        except BaseException:  # no board outlives its test
            self.end()
            raise
        assert (entered.status, entered.headers["location"]) == (303, "/"), entered
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> str:
        """End the board as Ctrl-C does; what it printed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        out, _ = self.process.communicate(timeout=LONGER_THAN_A_STOP_S)
        return out

    def raw(self, method: str, path: str, headers: Headers = (), body: bytes = b"") -> Answer:
        """A request with exactly these headers."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=LONGER_THAN_A_STOP_S)
        with closing(connection):
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                connection.putheader(name, value)
            if body:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            found = connection.getresponse()
            fields = {key.lower(): value for key, value in found.getheaders()}
            return Answer(found.status, fields, found.read().decode())

    def get(self, path: str, *more: tuple[str, str]) -> Answer:
        return self.raw("GET", path, [("Host", self.host), ("Cookie", self.cookie), *more])

    def page_secret(self) -> str:
        found = re.search(r'X-Phasegate": "([\w-]+)"', self.get("/").text)
        assert found is not None
        return found[1]

    def post(self, path: str, **fields: object) -> Answer:
        """A change, as a page of the board sends it."""
        own = [("Host", self.host), ("Cookie", self.cookie), ("Origin", f"http://{self.host}")]
        form = ("Content-Type", "application/x-www-form-urlencoded")
        body = urlencode(fields).encode()
        return self.raw("POST", path, [*own, ("X-Phasegate", self.page_secret()), form], body)

    def seq(self, feature_path: str) -> int:
        """The number that the page of a feature shows, and that its buttons send."""
        found = re.search(r'name="seq" value="(\d+)"', self.get(feature_path).text)
        assert found is not None
        return int(found[1])
