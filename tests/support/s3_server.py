"""A real S3 server on loopback, and a proxy in front of it that can be away, or keep an answer to itself."""

from __future__ import annotations

import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import NamedTuple

from phasegate.engine.fleet.local_fleet import find_free_ports, s3_command
from phasegate.errors import EnvironmentUnavailable
from phasegate.storage.bucket.client import Bucket, BucketAddress

__all__ = ["find_free_ports"]
ACCESS, SECRET = "test-access-key", "test-secret-key"
BUCKET = "agileplus-artifacts"
KEYS = (ACCESS, SECRET)
READY_WITHIN_S = 120.0


class S3Server:
    """SeaweedFS: master, volume, filer and S3 in one process, on free ports of 127.0.0.1."""

    def __init__(self, program: str, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (self.port,) = find_free_ports(1)
        self._command = s3_command(program, folder, self.port, KEYS)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def kill(self) -> None:
        """As a power failure would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait_until_ready(self) -> None:
        """Until it takes an object and gives it back: it answers 500 for a while first."""
        bucket, pause = self.bucket(prefix="ready"), Event()
        for _ in range(int(READY_WITHIN_S / 0.2)):
            with suppress(EnvironmentUnavailable):
                bucket.create("it", b"is")
                if bucket.get("it") is not None:
                    return
            pause.wait(0.2)
        raise AssertionError((self._folder / "server.log").read_text()[-4000:])

    def bucket(self, prefix: str, endpoint: str = "") -> Bucket:
        return Bucket(BucketAddress(endpoint or self.endpoint, BUCKET, prefix, "us-east-1"), KEYS)

    def patient_bucket(self, prefix: str, endpoint: str = "") -> Bucket:
        address = BucketAddress(endpoint or self.endpoint, BUCKET, prefix, "us-east-1")
        return Bucket(address, KEYS, retry_timeout_s=READY_WITHIN_S)


class Request(NamedTuple):
    """One request as the proxy saw it: which of our four calls it is, and its bytes."""

    kind: str
    path: str
    data: bytes


# "", or "away": it is not passed on; "lost": its answer is not; "refused": the key is not valid
Fault = Callable[[Request], str]
_REFUSAL = (
    b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Type: application/xml\r\n"
    b"Content-Length: 42\r\n\r\n<Error><Code>AccessDenied</Code> </Error>\n"
)


class FaultyProxy:
    """Passes requests on, each on a connection of its own, as far as `fault` lets it; counts them by kind and fate."""

    def __init__(self, port: int, fault: Fault = lambda _: "", after: Fault = lambda _: "") -> None:
        """`after` is asked when a request was carried out: it can only say that its answer is lost."""
        self._port, self.fault, self.after = port, fault, after
        self.seen: Counter[tuple[str, str]] = Counter()
        self._lock = Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> FaultyProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def count(self, fate: str) -> Mapping[str, int]:
        with self._lock:
            return {kind: number for (kind, how), number in self.seen.items() if how == fate}

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                Thread(target=self._handle, args=(self._listener.accept()[0],), daemon=True).start()

    def _handle(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            request = _read_request(client)
            if request is None:
                return
            fate = self.fault(request)
            with self._lock:
                self.seen[request.kind, fate] += 1
            if fate == "refused":
                client.sendall(_REFUSAL)
            elif fate != "away":
                answer = self._ask(request.data)
                if (self.after(request) or fate) != "lost":
                    client.sendall(answer)

    def _ask(self, data: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self._port), 30) as server:
            server.sendall(_closing(data))
            parts = []
            while part := server.recv(65536):
                parts.append(part)
        return _closing(b"".join(parts))


def _closing(message: bytes) -> bytes:
    """A message whose connection is not used again."""
    first, _, rest = message.partition(b"\r\n")
    return first + b"\r\nConnection: close\r\n" + rest


def _read_request(client: socket.socket) -> Request | None:
    data = b""
    while b"\r\n\r\n" not in data:
        part = client.recv(65536)
        if not part:
            return None
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines[1:])
    }
    length = int(headers.get("content-length", "0"))
    while len(body) < length:
        part = client.recv(65536)
        if not part:
            return None
        body += part
    method, target = lines[0].split(" ")[:2]
    kind = (
        "create"
        if "if-none-match" in headers
        else "replace"
        if "if-match" in headers
        else method.lower()
    )
    kind = "list" if "list-type=2" in target else kind
    return Request(kind, target.partition("?")[0], head + b"\r\n\r\n" + body)
