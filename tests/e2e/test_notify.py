"""`[notify]`: a person who is not looking is told, once an event; and whoever cannot be reached stops nothing."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Event, Thread
from typing import Any, NamedTuple

import pytest

from support.feature_project import APPROVES, ARCHIVES, FeatureProject, make_feature_project, plans

PHASES = ("01-requirements", "08-code-review")
NOTE = f"[workflows.note]\nphases = {json.dumps(PHASES)}\n"
KEY = b"sixteen bytes or more"
LEAKED = "ghp_" + "a1B2" * 9
KEEPS = "import pathlib, sys, uuid; pathlib.Path(sys.argv[1], uuid.uuid4().hex).write_bytes(sys.stdin.buffer.read())"


class Posted(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes


class Peers(NamedTuple):
    """An HTTP server and a mail server on loopback, and what they got."""

    http: str
    smtp: str
    posted: list[Posted]
    mails: list[str]


@contextmanager
def peers() -> Iterator[Peers]:
    posted: list[Posted] = []
    mails: list[str] = []
    end = Event()

    class Web(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append(
                Posted(self.path, {name.lower(): text for name, text in self.headers.items()}, body)
            )
            if self.path == "/hang":
                end.wait(60)
            code = {"/broken": 500, "/moved": 302}.get(self.path, 204)
            self.send_response(code)
            if code == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    class Mail(StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            while line := self.rfile.readline().strip().upper():
                if line == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    mails.append(b"".join(iter(self.rfile.readline, b".\r\n")).decode())
                self.wfile.write(b"221 bye\r\n" if line == b"QUIT" else b"250 yes\r\n")

    ThreadingTCPServer.daemon_threads = True
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Web) as web,
        ThreadingTCPServer(("127.0.0.1", 0), Mail) as mail,
    ):
        for server in (web, mail):
            Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield Peers(
                f"http://127.0.0.1:{web.server_port}",
                f"127.0.0.1:{mail.server_address[1]}",
                posted,
                mails,
            )
        finally:
            end.set()
            for server in (web, mail):
                server.shutdown()


def notified_project(folder: Path, notify: str) -> FeatureProject:
    project = make_feature_project(folder, config=f"{NOTE}[notify]\n{notify}")
    project.play(plans("01-requirements", PHASES), *APPROVES, ARCHIVES)
    return project


@pytest.mark.demand("W4.m")
def test_everybody_is_told_once_an_event_in_the_shape_they_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kept := tmp_path / "kept").mkdir()
    monkeypatch.setenv("HOOK_SECRET", f"whsec_{base64.b64encode(KEY).decode()}")
    with peers() as there:
        monkeypatch.setenv("SLACK_HOOK", f"slack+{there.http}/slack")
        urls = [
            f"{there.http}/hook",
            f"ntfy+{there.http}/topic",
            "$SLACK_HOOK",
            "mailto:ada@example.org",
        ]
        command = [sys.executable, "-c", KEEPS, str(kept)]
        settings = f'command = {json.dumps(command)}\nurls = {json.dumps(urls)}\nwebhook_secret_env = "HOOK_SECRET"\n'
        project = notified_project(tmp_path, f'{settings}smtp_server = "{there.smtp}"\n')
        assert project.call("run", "note", "Say bye").code == 0  # to its last gate
        by_path = {one.path: one for one in there.posted}
        assert sorted(one.path for one in there.posted) == ["/hook", "/slack", "/topic"]
        hook = by_path["/hook"]
        signed = (
            f"{hook.headers['webhook-id']}.{hook.headers['webhook-timestamp']}.".encode()
            + hook.body
        )
        code = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
        assert hook.headers["webhook-signature"] == f"v1,{code}"
        told = json.loads(hook.body)
        assert (told["type"], told["data"]["feature"]) == ("person.needed", "001-say-bye")
        assert told["data"]["command"] == "phasegate complete"
        (written,) = [json.loads(path.read_bytes()) for path in kept.iterdir()]
        assert written == told["data"]
        title = "repo: 001-say-bye: last gate passed (08-code-review)"
        assert by_path["/topic"].headers["title"] == title
        assert json.loads(by_path["/slack"].body) == {"text": f"{title}\nthen: phasegate complete"}
        (mail,) = there.mails
        assert f"Subject: {title}" in mail.replace("\r\n ", " ")

        for _ in range(2):
            assert project.call("run").code == 0  # nothing more has happened
        assert (len(there.posted), len(there.mails), len([*kept.iterdir()])) == (3, 1, 1)
        assert project.call("complete").code == 0
        last = [json.loads(one.body) for one in there.posted if one.path == "/hook"][-1]
        assert (last["type"], last["data"]["outcome"]) == (
            "run.ended",
            "completed (08-code-review)",
        )
        assert len(there.mails) == 2
        assert project.audit_problems() == []


@pytest.mark.demand("W4.m")
def test_who_cannot_be_reached_is_a_notice_and_stops_nothing(tmp_path: Path) -> None:
    with peers() as there:
        paths = ("broken", "moved", "hang", "fine")
        urls = [
            *(f"{there.http}/{path}" for path in paths),
            "http://127.0.0.1:1/",
            "$NOT_SET",
            "gopher://x",
        ]
        settings = f'command = ["no-such-program"]\nurls = {json.dumps(urls)}\n'
        project = notified_project(tmp_path, settings)
        done = project.call("run", "note", "Say bye")
        assert done.code == 0, "the run itself went well"
        for said in (
            "no-such-program was not notified: ",
            "http: address 1 was not notified: HTTP status 500",
            "http: address 2 was not notified: HTTP status 302",
            "http: address 3 was not notified: no answer within 5 s",
            "http: address 5 was not notified: ",
            "$NOT_SET was not notified: $NOT_SET is not set",
            "gopher: address 7 was not notified: unsupported kind of address",
        ):
            assert said in done.stderr
        assert "address 4" not in done.stderr
        assert "/elsewhere" not in [one.path for one in there.posted]
        argv = [sys.executable, "-m", "phasegate", "complete"]
        ended = subprocess.run(
            argv, cwd=project.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert (ended.returncode, "address 1 was not notified" in ended.stdout) == (0, True)
        assert ended.stdout.endswith("---\n"), "the block is the last thing all the same"


@pytest.mark.demand("W4.m")
def test_a_reason_is_short_and_holds_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "hunter2-hunter2")
    with peers() as there:
        project = notified_project(tmp_path, f'urls = ["{there.http}/hook"]\n')
        project.start("note", "Say bye")
        for why in (
            f"the key {LEAKED} is refused",
            "the token hunter2-hunter2 is old",
            "long " * 100,
        ):
            assert project.call("escalate", why).code == 0
            assert project.call("run").code == 1
            assert project.call("resolve", "go on").code == 0
        reasons = [json.loads(one.body)["data"]["reason"] for one in there.posted]
        assert reasons[0] == "(reason omitted: it may contain a secret)"
        assert reasons[1] == "the token [redacted] is old"
        assert len(reasons[2]) == 200
        assert b"hunter2" not in b"".join(one.body for one in there.posted)


@pytest.mark.demand("W4.m")
def test_a_person_can_try_who_would_be_told(tmp_path: Path) -> None:
    with peers() as there:
        project = notified_project(
            tmp_path, f'urls = ["{there.http}/hook", "{there.http}/broken"]\n'
        )
        done = project.call("notify")
        assert (done.code, done.stdout) == (
            1,
            "http: address 1: delivered\nhttp: address 2: not delivered: HTTP status 500\n",
        )
        assert b"this is a test" in there.posted[0].body
        assert b": : " not in there.posted[0].body
    settings = project.root / "phasegate.toml"
    settings.write_text(settings.read_text().split("[notify]")[0])
    done = project.call("notify")
    assert (done.code, "no receiver is configured" in done.stderr) == (2, True)
