"""Keep responses of a forge on disk, so that the next run repeats them with their ETags.

A stored response stands for an answer of the forge, so it is signed with the token: a program that
does not know the token cannot plant an approval.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
from collections.abc import Iterator
from pathlib import Path

import msgspec

from phasegate.files.durable_write import replace_file
from phasegate.forge.http import HttpResponse, RateLimit
from phasegate.typed import read_json

MAX_STORED_BYTES = 1024**2
MAX_STORED_RESPONSES = 2000
_KEPT_HEADERS = ("etag", "link", "x-next-page", "x-total-count")
_SIGNATURE_BYTES = 32


class _StoredResponse(msgspec.Struct, frozen=True):
    path: str
    body: bytes
    headers: dict[str, str]


class StoredResponses:
    """Implements `http.ResponseStore` in a folder, for one token of one forge."""

    def __init__(self, folder: Path, url: str, token: str) -> None:
        self._folder = folder
        self._key = hashlib.sha256(f"{url}\n{token}".encode()).digest()
        self._memory: dict[str, HttpResponse] = {}
        self._rate_limits: dict[str, RateLimit] = {}

    def read(self, path: str) -> HttpResponse | None:
        """Return the stored response for a path, or None if missing or not ours."""
        if path not in self._memory:
            data = self._read_signed(self._file_of(path))
            if data is None:
                return None

            try:
                found = read_json(data, _StoredResponse)
            except msgspec.MsgspecError:
                return None
            if found.path != path:
                return None
            self._memory[path] = HttpResponse(200, found.body, found.headers)

        return self._memory[path]

    def write(self, path: str, response: HttpResponse) -> None:
        self._memory[path] = response
        if len(response.body) > MAX_STORED_BYTES:
            return

        headers = {name: value for name, value in response.headers.items() if name in _KEPT_HEADERS}
        stored = _StoredResponse(path, response.body, headers)
        self._write_signed(self._file_of(path), msgspec.json.encode(stored))

    @contextlib.contextmanager
    def one_at_a_time(self) -> Iterator[None]:
        """Lock the folder while the context lasts; do nothing if it cannot be written."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = (self._folder / "lock").open("ab")
        except OSError:
            yield
            return

        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def read_rate_limit(self, resource: str) -> RateLimit | None:
        data = self._read_signed(self._file_of(f"rate limit {resource}"))
        if data is None:
            return None
        try:
            return read_json(data, RateLimit)
        except msgspec.MsgspecError:
            return None

    def write_rate_limit(self, resource: str, rate_limit: RateLimit) -> None:
        """Store a rate limit once it matters to other processes, or no longer does."""
        before = self._rate_limits.get(resource)
        self._rate_limits[resource] = rate_limit
        was_low = before is not None and before.is_low
        if not rate_limit.is_low and not was_low:
            return

        self._write_signed(self._file_of(f"rate limit {resource}"), msgspec.json.encode(rate_limit))

    def _file_of(self, name: str) -> Path:
        return self._folder / hmac.new(self._key, name.encode(), "sha256").hexdigest()

    def _read_signed(self, file: Path) -> bytes | None:
        try:
            data = file.read_bytes()
        except OSError:
            return None

        signature, content = data[:_SIGNATURE_BYTES], data[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._sign(file, content)):
            return None
        return content

    def _write_signed(self, file: Path, content: bytes) -> None:
        """Write a file; a full disk or a read-only folder only costs requests."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not file.exists():
                self._remove_oldest()
            replace_file(file, self._sign(file, content) + content)

    def _sign(self, file: Path, content: bytes) -> bytes:
        return hmac.new(self._key, file.name.encode() + content, "sha256").digest()

    def _remove_oldest(self) -> None:
        """Keep the number of stored responses limited."""
        files = list(self._folder.iterdir())
        if len(files) < MAX_STORED_RESPONSES:
            return

        files.sort(key=lambda file: file.stat().st_mtime)
        for file in files[: MAX_STORED_RESPONSES // 2]:
            file.unlink(missing_ok=True)
