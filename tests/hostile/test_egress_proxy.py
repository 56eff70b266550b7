"""A job that has a proxy reaches the hosts that are listed and nothing else, and never sees the key (ATTACKS O09)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from phasegate.core.agents.hosts import is_host_allowed
from phasegate.sandbox.egress_proxy import ConnectionAttempt, EgressProxy, find_proxy
from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.probe import probe_level
from phasegate.sandbox.request import EGRESS_PROXY_PORT, SandboxLevel
from support.dispatch_project import make_project, package
from support.quick_dispatch import ECHO
from support.sandboxed import SANDBOXED, Room, make_room, python

linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="there is no sandbox on this system"
)
KEY = "the-real-key-0123456789"
# Each attempt prints its name when it got through. `sys.argv`: token, port of the machine's server, another address.
ATTEMPTS = """
    import json, socket, sys
    port, address = int(sys.argv[2]), sys.argv[3]

    def got_through(host, to_port, *lines):
        with socket.create_connection((host, to_port), 3) as one:
            one.sendall("".join(line + "\\r\\n" for line in (*lines, "")).encode())
            one.settimeout(3)
            data = b""
            while part := one.recv(4096):
                data += part
                if b"it is the server" in data or b"established" in data:
                    return True
        return False

    get = ("GET / HTTP/1.1", "Host: x", "Connection: close")
    attempts = {
        "loopback of the machine": lambda: got_through("127.0.0.1", port, *get),
        "localhost": lambda: got_through("localhost", port, *get),
        "address of the machine": lambda: got_through(address, port, *get),
        "cloud metadata": lambda: got_through("169.254.169.254", 80, *get),
        "a name": lambda: bool(socket.getaddrinfo("example.com", 443)),
        "a name server": lambda: asked_a_name_server(),
        "another host by proxy": lambda: got_through("127.0.0.1", PROXY, "CONNECT other.test:443 HTTP/1.1"),
        "an address by proxy": lambda: got_through("127.0.0.1", PROXY, f"CONNECT 127.0.0.1:{port} HTTP/1.1"),
        "an IPv6 address by proxy": lambda: got_through("127.0.0.1", PROXY, f"CONNECT [::1]:{port} HTTP/1.1"),
        "another port by proxy": lambda: got_through("127.0.0.1", PROXY, "CONNECT localhost:22 HTTP/1.1"),
        "plain by proxy": lambda: got_through("127.0.0.1", PROXY, f"GET http://127.0.0.1:{port}/ HTTP/1.1"),
        "a host in front": lambda: got_through("127.0.0.1", PROXY, f"GET http://localhost@127.0.0.1:{port}/ HTTP/1.1"),
        "a route that is not there": lambda: got_through("127.0.0.1", PROXY, "GET /~7/ HTTP/1.1"),
        "no request": lambda: got_through("127.0.0.1", PROXY, "it is the", "\\0\\0"),
        "ALLOWED tunnel": lambda: got_through("127.0.0.1", PROXY, f"CONNECT localhost:{port} HTTP/1.1"),
        "ALLOWED route": lambda: got_through(
            "127.0.0.1", PROXY, "GET /~0/v1/models HTTP/1.1", "x-api-key: dummy-4711", "Connection: keep-alive"
        ),
    }

    def asked_a_name_server():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.settimeout(3)
            one.connect((address, port))
            one.send(b"a question")
            return one.recv(100) == b"an answer"

    for name, attempt in attempts.items():
        try:
            through = attempt()
        except OSError:
            through = False
        if through:
            print(name)
""".replace("PROXY", str(EGRESS_PROXY_PORT))
FROM_OUTSIDE = {"loopback of the machine", "localhost", "address of the machine", "a name server"}


class Server(ThreadingHTTPServer):
    """Answers everything on all addresses of the machine, and remembers the keys that it was sent."""

    daemon_threads = True

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        super().__init__(("0.0.0.0", 0), _Handler)
        self.port = self.server_address[1]
        self.names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.names.bind(("0.0.0.0", self.port))
        self.names_thread = threading.Thread(target=self._answer_names, daemon=True)
        for thread in (threading.Thread(target=self.serve_forever, daemon=True), self.names_thread):
            thread.start()

    def _answer_names(self) -> None:
        """Answer datagrams until an empty one arrives."""
        while True:
            data, sender = self.names.recvfrom(100)
            if not data:
                return
            self.names.sendto(b"an answer", sender)

    def stop(self) -> None:
        self.shutdown()
        # The thread must end before the socket is closed: it would read from whatever gets the descriptor next.
        self.names.sendto(b"", ("127.0.0.1", self.port))
        self.names_thread.join()
        self.names.close()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers.get("x-api-key", "")))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"it is the server")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return make_room(tmp_path)


@pytest.fixture
def address() -> str:
    """Another address of this machine than loopback, where it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return "127.0.0.1"
        return str(one.getsockname()[0])


@linux_only
@pytest.mark.demand("X6.b", "X6.c")
@pytest.mark.parametrize("level", SANDBOXED)
def test_a_job_reaches_the_listed_hosts_and_nothing_else(
    room: Room, server: Server, address: str, level: SandboxLevel
) -> None:
    control = subprocess.run(
        [*python(ATTEMPTS), room.token, str(server.port), address],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert set(control.stdout.splitlines()) >= FROM_OUTSIDE, control
    told: list[ConnectionAttempt] = []
    routes = [f"http://localhost:{server.port}"]
    proxy = EgressProxy([f"localhost:{server.port}"], routes, {"dummy-4711": KEY}, told.append)
    server.seen.clear()
    request = room.request(
        ATTEMPTS, level, str(server.port), address, egress_proxy=proxy, timeout_s=90.0
    )
    outcome = SandboxedJob(request).run()
    assert set(outcome.stdout.text.splitlines()) == {"ALLOWED tunnel", "ALLOWED route"}, outcome
    assert server.seen == [("/v1/models", KEY)]
    refused = {f"{one.host}:{one.port}" for one in told if not one.allowed}
    assert {"other.test:443", "localhost:22", f"127.0.0.1:{server.port}"} <= refused
    assert ConnectionAttempt("localhost", server.port, True) in told


@linux_only
def test_the_proxy_is_bounded_and_ends_with_its_job(room: Room, server: Server) -> None:
    """Two hundred connections that say nothing keep nobody else out for longer than their time, and none is left."""
    code = """
        import socket, sys, threading
        idle = []
        for _ in range(40):
            idle.append(socket.create_connection(("127.0.0.1", PROXY), 5))
            idle[-1].sendall(b"CONNECT ")
        with socket.create_connection(("127.0.0.1", PROXY), 5) as one:
            one.sendall(b"X" * 100_000)
            assert one.recv(100).startswith(b"HTTP/1.1 400")
        with socket.create_connection(("127.0.0.1", PROXY), 5) as one:
            one.sendall(b"GET /~0/ HTTP/1.1\\r\\n\\r\\n")
            assert b"200" in one.recv(100)
        print("served")
    """.replace("PROXY", str(EGRESS_PROXY_PORT))
    before = threading.active_count()
    proxy = EgressProxy([], [f"http://localhost:{server.port}"])
    outcome = SandboxedJob(room.request(code, SandboxLevel.OFFLINE, egress_proxy=proxy)).run()
    assert outcome.stdout.text == "served\n", outcome
    for thread in [*threading.enumerate()]:
        if thread.name == "egress-proxy":
            thread.join(10)
    assert threading.active_count() <= before + 1  # the server may still end a thread of its own


AGENT = """
cat > /dev/null
if [ "$PHASEGATE_PHASE" = review ]; then echo "<review>PASS</review>"; exit 0; fi
env > environment.txt
cat /proc/self/environ /proc/1/environ /proc/$PPID/environ 2>/dev/null | tr "\\0" "\\n" >> environment.txt
python3 - <<'END'
import os, urllib.request
headers = {"x-api-key": os.environ["MODEL_API_KEY"]}
request = urllib.request.Request(os.environ["MODEL_BASE_URL"] + "/v1/x", headers=headers)
print(urllib.request.urlopen(request, timeout=20).read().decode())
try:
    urllib.request.urlopen("http://other.test/", timeout=20)
except OSError as error:
    print(error)
END
mkdir -p src
echo "export const done = true;" > src/login.ts
git add src
git commit -q -m "WP01: Write it"
echo '{"job_id": "'$AGILEPLUS_JOB_ID'", "wp_id": "WP01", "success": true, "status": "completed"}'
"""


@linux_only
@pytest.mark.demand("X6.b", "X6.c")
def test_a_dispatch_at_offline_reaches_its_model_without_its_key_and_the_trail_names_the_hosts(
    tmp_path: Path, server: Server
) -> None:
    if not probe_level(SandboxLevel.OFFLINE).is_supported:
        pytest.skip("not enforceable here: level offline")
    program = tmp_path / "agent.sh"
    program.write_text(AGENT)
    command = json.dumps(["/bin/sh", str(program)])
    harness = f'harness = "command"\ncommand = {command}\nenv = ["MODEL_API_KEY", "MODEL_BASE_URL"]\ntimeout_s = 60'
    made = make_project(
        tmp_path,
        {"WP01": package(test=ECHO, file_scope=["src/", "environment.txt"])},
        harness=harness,
        run='sandbox = "offline"',
    )
    env = {"MODEL_API_KEY": KEY, "MODEL_BASE_URL": f"http://127.0.0.1:{server.port}"}
    done = made.program("dispatch", "WP01", env=env)
    assert done.code == 0, done
    assert ("/v1/x", KEY) in server.seen
    job = made.jobs()[0].id
    log = (made.project.jobs_folder / job / "stdout.log").read_text()
    assert "it is the server" in log
    assert "403" in log
    reached = [
        (one["host"], one["allowed"]) for one in made.trail(job) if one["action"] == "reach_host"
    ]
    assert reached == [(f"127.0.0.1:{server.port}", True), ("other.test:80", False)]
    environment = made.git("show", "main..feat/001-user-login", "--", "environment.txt")
    assert "MODEL_API_KEY=the-dummy-" in environment
    assert KEY not in environment  # and if it were there, the harvest would have refused it


# As a package manager: what it fetches, it fetches by the proxy that its variables name.
REACHES = """
import http.client, os, sys
port = int(sys.argv[1])

def fetch(path, host="", tunnel=None):
    try:
        way = http.client.HTTPConnection(host, port, timeout=5)
        if tunnel:
            way = http.client.HTTPConnection(os.environ["HTTPS_PROXY"].removeprefix("http://"), timeout=5)
            way.set_tunnel(tunnel, port)
        way.request("GET", path)
        way.getresponse().read()
    except (OSError, KeyError) as error:
        print(path, error)

fetch("/direct", "127.0.0.1")
fetch("/listed", tunnel="localhost")
fetch("/other", tunnel="127.0.0.1")
"""


@linux_only
@pytest.mark.demand("X6.b")
@pytest.mark.parametrize(
    ("level", "is_listed", "reached"),
    [
        ("offline", True, {"/listed"}),
        ("worktree", True, {"/listed"}),
        ("offline", False, set()),
        ("worktree", False, {"/direct"}),  # the control: this is what a setup can do
    ],
)
def test_a_setup_reaches_the_hosts_that_are_listed_and_nothing_else(
    tmp_path: Path, server: Server, level: str, is_listed: bool, reached: set[str]
) -> None:
    if not probe_level(SandboxLevel.OFFLINE).is_supported:
        pytest.skip("not enforceable here: level offline")
    hosts = [f"localhost:{server.port}"] if is_listed else []
    commands = f'setup = "python3 reach.py {server.port}"\ntest = "{ECHO}"\nbuild = ""\nlint = ""\ntypecheck = ""'
    run = f'sandbox = "{level}"\nsetup_allowed_hosts = {json.dumps(hosts)}\n[checks.python]\n{commands}'
    made = make_project(tmp_path, files={"reach.py": REACHES, "requirements.txt": ""}, run=run)
    done = made.command("check")
    assert done.code == 0, done
    assert {path for path, _ in server.seen} == reached


def test_a_host_is_named_exactly_or_by_its_domain() -> None:
    assert is_host_allowed("api.model.test", 443, ["api.model.test"])
    assert is_host_allowed("API.Model.Test.", 443, ["*.model.test"])
    assert is_host_allowed("[::1]".strip("[]"), 8080, ["[::1]:8080"])
    for host, port in (
        ("model.test", 443),
        ("evilmodel.test", 443),
        ("api.model.test", 80),
        ("api.model.test.x", 443),
    ):
        assert not is_host_allowed(host, port, ["*.model.test", "api.model.test"])
    assert not is_host_allowed("10.0.0.1", 443, ["*.0.1"]) or is_host_allowed(
        "10.0.0.1", 443, ["10.0.0.1"]
    )


def test_the_persons_own_proxy_is_used_but_where_they_say_not() -> None:
    env = {"HTTPS_PROXY": "http://proxy.test:8080", "NO_PROXY": "localhost,.inside.test"}
    assert find_proxy("api.model.test", "https", env) == "http://proxy.test:8080"
    assert find_proxy("a.inside.test", "https", env) == ""
    assert find_proxy("localhost", "https", env) == ""
    assert find_proxy("api.model.test", "http", env) == ""
    assert find_proxy("api.model.test", "https", {**env, "NO_PROXY": "*"}) == ""


# An own program without `allowed_hosts`: asks the machine in every way that it has, and a server of its own.
OWN_PROGRAM = """
import http.client, http.server, json, os, socket, subprocess, sys, threading
if os.environ["PHASEGATE_PHASE"] == "review":
    print("<review>PASS</review>")
    sys.exit()
port, address = int(sys.argv[1]), sys.argv[2]
proxy = os.environ.get("HTTPS_PROXY", "").removeprefix("http://")

def ask(name, host, tunnel=None):
    try:
        way = http.client.HTTPConnection(proxy if tunnel else host, None if tunnel else port, timeout=5)
        if tunnel:
            way.set_tunnel(tunnel, port)
        way.request("GET", "/" + name)
        way.getresponse().read()
    except OSError as error:
        print(name, error)

ask("direct", "127.0.0.1")
ask("address", address)
if proxy:
    for name, host in (("loopback", "127.0.0.1"), ("localhost", "localhost"), ("card", address), ("mapped", "[::ffff:127.0.0.1]"), ("any", "0.0.0.0")):
        ask(name, "", tunnel=host)
own = http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), http.server.BaseHTTPRequestHandler)
threading.Thread(target=own.handle_request, daemon=True).start()
http.client.HTTPConnection("127.0.0.1", own.server_port, timeout=5).request("GET", "/")
os.makedirs("src", exist_ok=True)
open("src/login.ts", "w").write("export const done = true;")
subprocess.run(["git", "add", "src"], check=True)
subprocess.run(["git", "commit", "-q", "-m", "WP01: Write it"], check=True)
print(json.dumps({"job_id": os.environ["AGILEPLUS_JOB_ID"], "wp_id": "WP01", "success": True, "status": "completed"}))
"""


@linux_only
@pytest.mark.demand("X6.b")
@pytest.mark.parametrize("is_open", [False, True])
def test_an_own_program_reaches_no_service_of_this_machine_unless_the_user_opens_the_network(
    tmp_path: Path, server: Server, address: str, is_open: bool
) -> None:
    """The control is `allowed_hosts = ["*"]`: then all of it is reached."""
    if not probe_level(SandboxLevel.OFFLINE).is_supported:
        pytest.skip("not enforceable here: level offline")
    program = tmp_path / "agent.py"
    program.write_text(OWN_PROGRAM)
    command = json.dumps(["python3", str(program), str(server.port), address])
    harness = f'harness = "command"\ncommand = {command}\ntimeout_s = 60'
    if is_open:
        harness += '\nallowed_hosts = ["*"]'
    made = make_project(
        tmp_path, {"WP01": package(test=ECHO, file_scope=["src/"])}, harness=harness
    )
    done = made.command("dispatch", "WP01")
    assert done.code == 0, done
    assert {path for path, _ in server.seen} == ({"/direct", "/address"} if is_open else set())
