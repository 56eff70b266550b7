"""Who gets past the board's guard: hosts, origins, tokens, sites, sizes and slow connections."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from support.board_client import BoardClient
from support.feature_run import DESCRIPTION, SLUG, TYPE, FeatureRun, make_feature_run

PAGE = f"/at/repo/feature/{SLUG}"
PATHS = (
    "/",
    "/decisions",
    "/timeline",
    "/audit",
    PAGE,
    "/events",
    "/static/board.css",
    "/at/repo/job/x/log",
)
FORM = ("Content-Type", "application/x-www-form-urlencoded")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> FeatureRun:
    made = make_feature_run(tmp_path_factory.mktemp("guard"))
    os.environ.setdefault("XDG_STATE_HOME", str(made.folder / "state"))
    assert made.run("start", TYPE, DESCRIPTION).returncode == 0
    return made


@pytest.fixture
def board(run: FeatureRun, tmp_path: Path):  # type: ignore[no-untyped-def]
    with BoardClient(run.root, env={"XDG_STATE_HOME": str(tmp_path)}) as client:
        yield client


def stage(run: FeatureRun) -> str:
    with run.reader() as reader:
        return reader.workflows()[0].stage


@pytest.mark.demand("X2.c")
def test_a_token_lets_one_browser_in_once_and_nothing_answers_without_a_session(
    board: BoardClient,
) -> None:
    own = ("Host", board.host)
    assert board.raw("GET", board.token_path, [own]).status == 401  # it was used
    assert board.raw("GET", "/enter", [own]).status == 401
    assert board.raw("GET", "/enter?token=%FF", [own]).status == 401
    for path in PATHS:
        for cookie in (
            "",
            f"phasegate_{board.port}=",
            f"phasegate_{board.port}=x",
            "phasegate_1=" + board.cookie[-40:],
        ):
            refused = board.raw("GET", path, [own, ("Cookie", cookie)])
            assert (refused.status, "phasegate board" in refused.text) == (401, True), (
                path,
                cookie,
            )
    headers = board.get("/").headers
    assert "unsafe" not in headers["content-security-policy"]
    assert "default-src 'none'" in headers["content-security-policy"]
    assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
    assert "server" not in headers
    said = board.end()
    assert said.count("/enter?token=") == 1  # the next link, for another browser
    assert board.token_path not in said


@pytest.mark.demand("X2.c")
def test_only_the_board_s_own_host_and_pages_reach_it(board: BoardClient) -> None:
    port, cookie = board.port, ("Cookie", board.cookie)
    hosts = (
        "evil.test",
        "127.0.0.1.evil.test",
        f"127.0.0.1:{port}@evil",
        "127.0.0.1",
        f"127.0.0.1:{port + 1}",
        "",
    )
    for host in (*hosts, f"localhost.evil:{port}", f"0.0.0.0:{port}", f"[::1]:{port}"):
        assert board.raw("GET", "/", [("Host", host), cookie]).status in (400, 403), host
    assert board.raw("GET", "/", [cookie]).status in (400, 403)  # absent
    twice = [("Host", board.host), ("Host", "evil.test"), cookie]
    assert board.raw("GET", "/", twice).status in (400, 403)
    for site in (
        "cross-site",
        "same-site",
        "x",
    ):  # same-site: a page on another port of this machine
        assert board.get("/", ("Sec-Fetch-Site", site)).status == 403
    for host in (board.host, f"localhost:{port}"):  # the control
        assert (
            board.raw(
                "GET", "/", [("Host", host), cookie, ("Sec-Fetch-Site", "same-origin")]
            ).status
            == 200
        )


@pytest.mark.demand("X2.c")
def test_nothing_is_changed_without_our_origin_and_a_page_s_secret(
    board: BoardClient, run: FeatureRun
) -> None:
    order, body = f"{PAGE}/order/escalate", f"seq={board.seq(PAGE)}&text=look".encode()
    own, secret = (
        [("Host", board.host), ("Cookie", board.cookie)],
        ("X-Phasegate", board.page_secret()),
    )
    origin = ("Origin", f"http://{board.host}")
    foreign = (
        "null",
        "http://localhost.evil",
        "http://127.0.0.1:1",
        f"http://localhost:{board.port}",
        f"https://{board.host}",
    )
    for other in foreign:
        assert (
            board.raw("POST", order, [*own, ("Origin", other), secret, FORM], body).status == 403
        ), other
    assert board.raw("POST", order, [*own, secret, FORM], body).status == 403  # no origin
    assert (
        board.raw("POST", order, [*own, origin, FORM], body).status == 403
    )  # a form of another page
    assert (
        board.raw(
            "POST",
            order,
            [*own, origin, ("X-Phasegate", "x"), ("Content-Type", "text/plain")],
            body,
        ).status
        == 403
    )
    assert (
        board.raw("POST", order, [("Host", board.host), origin, secret, FORM], body).status == 401
    )
    assert (
        board.raw("POST", order, [*own, origin, secret, FORM], b"text=" + b"x" * 70_000).status
        == 413
    )
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert board.raw(method, order, [*own, origin, secret], b"").status in (400, 405), method
    assert board.get(f"{order}?{body.decode()}").status in (404, 405)  # nor by a link
    assert stage(run) == "working"
    assert board.raw("POST", order, [*own, origin, secret, FORM], body).status == 200  # the control
    assert stage(run) == "blocked"


@pytest.mark.demand("X2.c")
def test_it_listens_on_loopback_and_its_secrets_are_in_no_file_and_no_environment(
    board: BoardClient, run: FeatureRun, tmp_path: Path
) -> None:
    with socket.socket() as other:
        other.settimeout(2)
        mine = next(
            (row[4][0] for row in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)),
            "127.0.0.2",
        )
        address = mine if not mine.startswith("127.0.0.1") else "127.0.0.2"
        assert other.connect_ex((address, board.port)) != 0
    secrets = [
        board.link.partition("token=")[2],
        board.cookie.partition("=")[2],
        board.page_secret(),
    ]
    files = [
        path.read_bytes()
        for folder in (tmp_path, run.root)
        for path in folder.rglob("*")
        if path.is_file()
    ]
    environment = Path(f"/proc/{board.process.pid}/environ").read_bytes()
    assert not [one for one in secrets for text in (*files, environment) if one.encode() in text]


@pytest.mark.demand("X2.c")
def test_slow_connections_are_closed_and_do_not_keep_others_out(board: BoardClient) -> None:
    slow = []
    for _ in range(150):
        one = socket.create_connection(("127.0.0.1", board.port))
        one.sendall(b"GET / HTTP/1.1\r\nHost: ")
        slow.append(one)
    assert board.get("/").status == 200
    slow[0].settimeout(30)
    with suppress(ConnectionResetError):  # a close with data that was not read yet
        assert slow[0].recv(1) == b""  # the board has hung up
    for one in slow:
        one.close()
    with socket.create_connection(("127.0.0.1", board.port)) as flood:
        flood.settimeout(30)
        flood.sendall(b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * 60_000)
        assert b"400" in flood.recv(200)
    assert board.get("/").status == 200


def test_hundreds_of_idle_connections_do_not_make_the_board_refuse_others(
    board: BoardClient,
) -> None:
    idle = []
    try:
        for _ in range(400):
            idle.append(socket.create_connection(("127.0.0.1", board.port)))
            idle[-1].settimeout(30)
        assert idle[0].recv(1) == b""  # the oldest ones were closed for the newer ones
        assert [board.get("/").status for _ in range(3)] == [200] * 3
    finally:
        for one in idle:
            one.close()
