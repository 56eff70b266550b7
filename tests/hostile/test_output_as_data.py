"""What programs read is one JSON object, without characters that control a terminal, in bounded time."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phasegate.core.text.visible import escape_controls, escape_json
from phasegate.errors import TemporarilyUnavailable
from phasegate.forge.http import ApiPayload, ForgeApi
from support.dispatch_project import SLUG, approves, implements, make_project, turn, writes
from support.mcp_client import McpClient

CONTROLS = "\x9b31m\u202eevil\x1b[2J\x85"
# They show nothing, and a program that reads them may obey what they spell
HIDDEN = "\u200b\u2028\u2060\ufeff\U000e0049\U000e0067"
TIMEOUT_S = 1.0


class Named(ApiPayload, frozen=True):
    name: str


@contextmanager
def dripping(head: bytes, drip: bytes) -> Iterator[str]:
    """A server that sends its head at once, and then one byte at a time."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(head)
                for byte in drip:
                    if stop.wait(0.1):
                        return
                    try:
                        connection.sendall(bytes((byte,)))
                    except OSError:
                        return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        stop.set()
        thread.join(5)


@pytest.mark.parametrize(
    ("head", "drip"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"x: " + b"y" * 1000),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n", b" " * 1000),
        (b"HTTP/1.1 500 No\r\ncontent-length: 1000\r\n\r\n", b" " * 1000),
    ],
    ids=["headers", "body", "error"],
)
def test_a_dripping_answer_of_a_forge_ends_at_a_total_deadline(head: bytes, drip: bytes) -> None:
    with dripping(head, drip) as url:
        started_s = time.monotonic()
        with pytest.raises(TemporarilyUnavailable):
            ForgeApi(url, {}, {}, timeout_s=TIMEOUT_S).get("/x", Named)
        # A hundred seconds without the deadline
        assert time.monotonic() - started_s < 30
    whole = b'HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n{"name":"a"}'
    with dripping(whole, b"") as url:
        assert ForgeApi(url, {}, {}, timeout_s=30).get("/x", Named) == Named("a")


def test_controls_are_escaped_and_json_keeps_its_values() -> None:
    text = f"a{CONTROLS}{HIDDEN}b\r\n\tc\rd é 你"
    shown = escape_controls(text)
    assert not set(shown) & set("\x9b\u202e\x1b\x85" + HIDDEN)
    assert shown.endswith("b\r\n\tc\\rd é 你")
    encoded = json.dumps({"x": text}, ensure_ascii=False)
    assert json.loads(escape_json(encoded)) == {"x": text}
    assert not set(escape_json(encoded)) & set("\x9b\u202e\x85" + HIDDEN)
    assert escape_json('{"x": "é 你"}\n') == '{"x": "é 你"}\n', "the control"
    assert escape_json('"\udcff"').encode() == b'"\\udcff"', "a name that is not UTF-8"


def test_results_for_programs_are_one_object_without_controls(tmp_path: Path) -> None:
    project = make_project(tmp_path, run='sandbox = "none"')
    with McpClient(project.root) as client:
        packages = client.tool("status")["packages"]
    assert [(one["feature"], one["id"]) for one in packages] == [(SLUG, "WP01")]

    project.play(
        turn(
            "implement",
            *writes("src/login.ts", text=f"// {CONTROLS}{HIDDEN}\n"),
            {"commit": "WP01: x"},
            {"result": "success"},
        ),
        approves(),
    )
    with (tmp_path / "out.json").open("wb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "phasegate", "dispatch", "WP01", "--json"],
            cwd=project.root,
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    assert json.loads((tmp_path / "out.json").read_text())["state"] == "DONE"
    assert "WP01: worktree ready" in done.stderr, "the control: progress is on stderr"

    for part in ("--diff", "--json"):
        shown = project.command("show", "WP01", *(("--diff",) if part == "--diff" else (part,)))
        assert shown.code == 0
        assert not set(shown.stdout) & set("\x9b\u202e\x1b\x85" + HIDDEN), part
    diff = project.command("show", "WP01", "--diff").stdout
    assert "evil" in diff
    with McpClient(project.root) as client:
        result = client.call(
            "tools/call", {"name": "explain", "arguments": {"what": "diff", "of": "WP01"}}
        )
    text = result["content"][0]["text"]
    assert "evil" in text
    assert not set(text) & set("\x9b\u202e\x1b\x85" + HIDDEN), "a model reads this"
    whole = json.loads(project.command("show", "WP01", "--diff", "--json").stdout)
    assert CONTROLS + HIDDEN in whole["text"], "the control: JSON keeps the value"


def test_a_dispatch_into_a_log_file_still_has_its_progress_there(tmp_path: Path) -> None:
    project = make_project(tmp_path, run='sandbox = "none"')
    project.play(implements("src/login.ts"), approves())
    with (tmp_path / "log").open("wb") as file:
        subprocess.run(
            [sys.executable, "-m", "phasegate", "dispatch", "WP01"],
            cwd=project.root,
            stdout=file,
            stderr=subprocess.PIPE,
            timeout=120,
            check=True,
        )
    assert "WP01: worktree ready" in (tmp_path / "log").read_text()


def test_a_prompt_is_exact_in_a_pipe_and_controls_no_terminal(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("before \x9b31m\u202e after\n")
    command = [sys.executable, "-m", "phasegate", "prompt", "show", "--phase", "plan"]
    command += ["--agent", "claude", "--file", "x.txt", "Do it"]
    ours, theirs = os.openpty()
    with (
        os.fdopen(ours, "rb", buffering=0) as screen,
        subprocess.Popen(command, cwd=tmp_path, stdout=theirs, stderr=subprocess.DEVNULL),
    ):
        os.close(theirs)
        shown = b"".join(iter(lambda: _read_terminal(screen.fileno()), b"")).decode()
    piped = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout.decode()
    assert "\x9b" in piped, "the control: a program gets the exact bytes"
    assert "before" in shown
    assert "\x9b" not in shown
    assert "\u202e" not in shown


def _read_terminal(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:
        # The other end is closed.
        return b""
