"""Send requests to the API of a forge.

Requests go to one host only and follow no redirects; time and response size are limited. Failures
are classified by who can fix them.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from email.message import Message
from typing import IO, NamedTuple, TypeVar

import msgspec

from phasegate.errors import EnvironmentUnavailable, TemporarilyUnavailable
from phasegate.typed import read_json

TIMEOUT_S = 30.0
MAX_RESPONSE_BYTES = 16 * 1024**2
MAX_PAGES = 20
# Gitea's. A page with fewer entries is the last one.
_SMALLEST_PAGE = 50
_PART_BYTES = 64 * 1024
_RATE_LIMIT_STATUSES = (429,)
_TRANSIENT_STATUSES = (500, 502, 503, 504)
T = TypeVar("T")


class ApiPayload(msgspec.Struct, frozen=True):
    """Base class of response payloads; unknown fields are ignored."""


class HttpResponse(NamedTuple):
    status: int
    body: bytes
    # Header names are lower case
    headers: Mapping[str, str]

    def get_error_text(self) -> str:
        """Return the forge's own error message, shortened."""
        try:
            found = json.loads(self.body)
            if isinstance(found, dict):
                text = found.get("message") or found.get("error")
            else:
                text = ""
        except ValueError:
            text = self.body.decode(errors="replace")

        line = " ".join(str(text or "").split())[:300]
        return "".join(character if character.isprintable() else "?" for character in line)


class ApiError(EnvironmentUnavailable):
    """An error response of the forge that the user must resolve."""

    def __init__(self, message: str, hint: str, status: int) -> None:
        super().__init__(message, hint)
        self.status = status


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which would send the token to another host."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> None:
        return None


class ForgeApi:
    """The API of one forge. The token is sent in a header, never in a URL."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        page_query: Mapping[str, str],
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Create a client; `page_query` requests the maximum page size."""
        self._url = url.rstrip("/")
        self._headers = dict(headers)
        self._page_query = page_query
        self._timeout_s = timeout_s
        self._opener = urllib.request.build_opener(_NoRedirect)
        # Responses with an ETag: repeating an unchanged request is free
        self._etag_cache: dict[str, HttpResponse] = {}

    def get(self, path: str, type_: type[T], **query: str) -> T:
        return self.decode(self._get_cached(self._build_path(path, query)), type_)

    def get_all(self, path: str, type_: type[T], **query: str) -> list[T]:
        """Return all items of a paginated list."""
        found: list[T] = []

        for page in range(1, MAX_PAGES + 1):
            asked = self._build_path(path, {**query, **self._page_query, "page": str(page)})
            answer = self._get_cached(asked)
            some: list[T] = self.decode(answer, list[type_])  # type: ignore[valid-type]
            found += some
            if not some or not self._has_more(answer, len(some)):
                return found

        raise ApiError(
            f"{path} has more than {MAX_PAGES} pages",
            "close the ones that are no longer needed",
            422,
        )

    def send(
        self,
        method: str,
        path: str,
        body: object,
        accept: Sequence[int] = (),
        *,
        strip_suffix: str = "",
    ) -> HttpResponse:
        """Send a request with a JSON body and return the response.

        Statuses in `accept` are returned, not raised as errors. `strip_suffix` is removed from the
        end of the API's URL for this request.
        """
        return self._check_status(
            self._request(method, path, body, strip_suffix=strip_suffix), method, path, accept
        )

    def decode(self, answer: HttpResponse, type_: type[T]) -> T:
        try:
            return read_json(answer.body, type_)
        except msgspec.MsgspecError as error:
            raise ApiError(
                f"the forge's response cannot be parsed: {error}",
                "check `kind` in [forge] and the version of the forge",
                422,
            ) from error

    def _has_more(self, response: HttpResponse, count: int) -> bool:
        """Return True if there may be another page after this one."""
        link = response.headers.get("link")
        if link is not None:
            return 'rel="next"' in link

        next_page = response.headers.get("x-next-page")
        if next_page is not None:
            return bool(next_page)

        return count >= _SMALLEST_PAGE

    def _build_path(self, path: str, query: Mapping[str, str]) -> str:
        if query:
            return f"{path}?{urllib.parse.urlencode(query)}"
        return path

    def _get_cached(self, path: str) -> HttpResponse:
        before = self._etag_cache.get(path)
        answer = self._request("GET", path, None, before.headers.get("etag", "") if before else "")
        if answer.status == 304 and before is not None:
            return before

        answer = self._check_status(answer, "GET", path, ())
        if "etag" in answer.headers:
            self._etag_cache[path] = answer

        return answer

    def _request(
        self, method: str, path: str, body: object, etag: str = "", strip_suffix: str = ""
    ) -> HttpResponse:
        if body is None:
            data = None
        else:
            data = msgspec.json.encode(body)

        headers = {**self._headers, "Accept": "application/json", "User-Agent": "phasegate"}
        if data is not None:
            headers["Content-Type"] = "application/json"
        if etag:
            headers["If-None-Match"] = etag

        url = self._url.removesuffix(strip_suffix) + path
        if not url.startswith(("https://", "http://")):
            raise ApiError(f"{self._url} is not the URL of an API", "set url in [forge]", 400)

        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 - checked above
        try:
            return _call_within(self._timeout_s, lambda: self._exchange(request))
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise TemporarilyUnavailable(f"{self._url} cannot be reached: {reason}") from error

    def _exchange(self, request: urllib.request.Request) -> HttpResponse:
        until_s = time.monotonic() + self._timeout_s
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return _read_response(answer, answer.status, until_s)
        except urllib.error.HTTPError as error:
            with error:
                return _read_response(error, error.code, until_s)

    def _check_status(
        self, answer: HttpResponse, method: str, path: str, accept: Sequence[int]
    ) -> HttpResponse:
        if 200 <= answer.status < 300 or answer.status in accept:
            return answer

        where = (
            f"{method} {path.partition('?')[0]}: {answer.status} {answer.get_error_text()}".rstrip()
        )
        wait_s = _retry_after_s(answer)
        if answer.status == 401:
            raise ApiError(where, "the token is not valid: set a new one", 401)

        if answer.status == 403 and wait_s is None:
            raise ApiError(
                where,
                "the token needs write permission for pull requests, contents and statuses",
                403,
            )

        if 300 <= answer.status < 400:
            raise ApiError(
                where, "the repository has moved: set url and repository in [forge]", answer.status
            )

        if wait_s is not None or answer.status in _TRANSIENT_STATUSES:
            raise TemporarilyUnavailable(where, retry_after_s=wait_s or 0.0)

        raise ApiError(where, "check the forge", answer.status)


def _call_within(timeout_s: float, call: Callable[[], HttpResponse]) -> HttpResponse:
    """Call a function in a thread; raise TimeoutError if it takes longer.

    The timeout of a socket counts from the last byte: a server that sends one byte at a time could
    hold a command for ever.
    """
    outcome: list[HttpResponse | BaseException] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not outcome:
        raise TimeoutError(f"no complete response within {timeout_s:g} s")
    if isinstance(outcome[0], BaseException):
        raise outcome[0]

    return outcome[0]


def _read_response(
    answer: http.client.HTTPResponse | urllib.error.HTTPError, status: int, until_s: float
) -> HttpResponse:
    body = b""
    while len(body) <= MAX_RESPONSE_BYTES and (part := answer.read1(_PART_BYTES)):
        body += part
        if time.monotonic() > until_s:
            raise TimeoutError("the response takes too long")

    if len(body) > MAX_RESPONSE_BYTES:
        raise ApiError("the forge's response is too large", "check the forge", 422)
    return HttpResponse(
        status, body, {name.lower(): value for name, value in answer.headers.items()}
    )


def _retry_after_s(answer: HttpResponse) -> float | None:
    """Return how long a rate limit requires to wait; None if the response is not a rate limit."""
    after = answer.headers.get("retry-after", "")
    if after.isdigit():
        return min(float(after), 3600.0)

    if (
        answer.status in (403, *_RATE_LIMIT_STATUSES)
        and answer.headers.get("x-ratelimit-remaining") == "0"
    ):
        reset = answer.headers.get("x-ratelimit-reset", "")
        if reset.isdigit():
            return min(max(0.0, float(reset) - time.time()), 3600.0)
        return 60.0

    if answer.status in _RATE_LIMIT_STATUSES or (
        answer.status == 403 and b"rate limit" in answer.body.lower()
    ):
        return 60.0

    return None
