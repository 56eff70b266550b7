"""Send requests to the API of a forge.

Requests go to one host only and follow no redirects; time and response size are limited. Failures
of the server are retried, then classified by who can fix them. Responses with an ETag are kept.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from email.message import Message
from typing import IO, NamedTuple, Protocol, TypeVar

import msgspec

from phasegate.errors import EnvironmentUnavailable, TemporarilyUnavailable
from phasegate.typed import read_json, read_value

TIMEOUT_S = 30.0
MAX_RESPONSE_BYTES = 16 * 1024**2
MAX_PAGES = 100
# 5xx responses of one call, and lost connections of one GET
_MAX_RETRIES = 4
_MAX_LOST_CONNECTIONS = 1
_FIRST_BACKOFF_S = 0.2
# A longer Retry-After is left to the caller
_MAX_INLINE_WAIT_S = 5.0
# Part of a token's rate limit that is left for merges and people
_RESERVED_PART = 0.05
_LOW_PART = 0.2
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
            text = "; ".join(_list_error_messages(found)) if isinstance(found, dict) else ""
        except ValueError:
            text = self.body.decode(errors="replace")

        line = " ".join(text.split())[:300]
        return "".join(character if character.isprintable() else "?" for character in line)


def _list_error_messages(found: Mapping[str, object]) -> Iterator[str]:
    """Yield the message of an error response, then those of the list that GitHub adds."""
    if text := found.get("message") or found.get("error"):
        yield str(text)

    errors = found.get("errors")
    for one in errors if isinstance(errors, list) else ():
        if isinstance(one, dict) and one.get("message"):
            yield str(one["message"])


class RateLimit(msgspec.Struct, frozen=True):
    """What is left of the rate limit of a token, as the forge last reported it."""

    limit: int
    remaining: int
    reset_at_s: float

    @property
    def is_low(self) -> bool:
        return self.remaining < self.limit * _LOW_PART

    def seconds_to_wait(self, now_s: float) -> float:
        """Return how long polls must wait, or 0 if enough is left."""
        if self.remaining > self.limit * _RESERVED_PART:
            return 0.0
        return max(0.0, self.reset_at_s - now_s)


class ResponseStore(Protocol):
    """Keeps responses with an ETag, and the rate limit of the token that got them."""

    def read(self, path: str) -> HttpResponse | None: ...

    def write(self, path: str, response: HttpResponse) -> None: ...

    def one_at_a_time(self) -> AbstractContextManager[None]:
        """Let only one user of the token read a pull request at a time."""

    def read_rate_limit(self, resource: str) -> RateLimit | None: ...

    def write_rate_limit(self, resource: str, rate_limit: RateLimit) -> None: ...


class MemoryStore:
    """A `ResponseStore` for one process."""

    def __init__(self) -> None:
        self._responses: dict[str, HttpResponse] = {}
        self._rate_limits: dict[str, RateLimit] = {}

    def read(self, path: str) -> HttpResponse | None:
        return self._responses.get(path)

    def write(self, path: str, response: HttpResponse) -> None:
        self._responses[path] = response

    def one_at_a_time(self) -> AbstractContextManager[None]:
        return nullcontext()

    def read_rate_limit(self, resource: str) -> RateLimit | None:
        return self._rate_limits.get(resource)

    def write_rate_limit(self, resource: str, rate_limit: RateLimit) -> None:
        self._rate_limits[resource] = rate_limit


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
        store: ResponseStore | None = None,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """Create a client; `page_query` requests the maximum page size.

        `wait` is called between the retries of a request.
        """
        self._url = url.rstrip("/")
        self._headers = dict(headers)
        self._page_query = page_query
        self._timeout_s = timeout_s
        self._opener = urllib.request.build_opener(_NoRedirect)
        # Repeating an unchanged request with an ETag is free on most forges
        self._store = store or MemoryStore()
        self._wait = wait

    def one_at_a_time(self) -> AbstractContextManager[None]:
        """Let only one user of the token read a pull request at a time."""
        return self._store.one_at_a_time()

    def get(self, path: str, type_: type[T], **query: str) -> T:
        return self.decode(self._get_cached(self._build_path(path, query)), type_)

    def get_optional(self, path: str, type_: type[T], **query: str) -> T | None:
        """Return None where the forge does not have it, or does not tell it to this token."""
        try:
            return self.get(path, type_, **query)
        except ApiError as error:
            if error.status in (403, 404):
                return None
            raise

    def get_all(self, path: str, type_: type[T], **query: str) -> list[T]:
        """Return all items of a paginated list."""
        pages = self.get_pages(path, list[type_], len, **query)  # type: ignore[valid-type]
        return [item for page in pages for item in page]

    def get_optional_pages(
        self, path: str, type_: type[T], count_items: Callable[[T], int]
    ) -> list[T]:
        """Return no page where the forge does not have it, or does not tell it to this token."""
        try:
            return self.get_pages(path, type_, count_items)
        except ApiError as error:
            if error.status in (403, 404):
                return []
            raise

    def get_pages(
        self, path: str, type_: type[T], count_items: Callable[[T], int], **query: str
    ) -> list[T]:
        """Return all pages of a paginated response."""
        found: list[T] = []
        item_count = 0
        last_body = b""

        for page in range(1, MAX_PAGES + 1):
            asked = self._build_path(path, {**query, **self._page_query, "page": str(page)})
            answer = self._get_cached(asked)
            # A list without pages is the same for every number
            if found and answer.body == last_body:
                return found

            last_body = answer.body
            found.append(self.decode(answer, type_))
            count = count_items(found[-1])
            item_count += count
            if not count or not self._has_more(answer, count, item_count):
                return found

        raise ApiError(
            f"{path} has more than {MAX_PAGES} pages",
            "close or delete entries that are no longer needed",
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
        may_repeat: bool = True,
    ) -> HttpResponse:
        """Send a request with a JSON body and return the response.

        Statuses in `accept` are returned, not raised as errors. `strip_suffix` is removed from the
        end of the API's URL for this request. `may_repeat` is False if a second request would make
        a second thing, such as a comment.
        """
        answer = self._request_with_retries(
            method, path, body, strip_suffix=strip_suffix, may_repeat=may_repeat
        )
        return self._check_status(answer, method, path, accept)

    def decode(self, answer: HttpResponse, type_: type[T]) -> T:
        """Decode a response. Where a field may not be null, null means that it is missing."""
        try:
            try:
                return read_json(answer.body, type_)
            except msgspec.ValidationError:
                return read_value(_drop_nulls(read_json(answer.body)) or [], type_)
        except msgspec.MsgspecError as error:
            raise ApiError(
                f"the forge's response cannot be parsed: {error}",
                "check `kind` in [forge] and the version of the forge",
                422,
            ) from error

    def _has_more(self, response: HttpResponse, count: int, item_count: int) -> bool:
        """Return True if there may be another page after this one."""
        link = response.headers.get("link")
        if link is not None:
            return 'rel="next"' in link

        next_page = response.headers.get("x-next-page")
        if next_page is not None:
            return bool(next_page)

        total = response.headers.get("x-total-count", "")
        if total.isdigit():
            return item_count < int(total)

        # Gitea's servers may have smaller pages than those that were asked for
        asked = self._page_query.get("per_page", "")
        return not asked.isdigit() or count >= int(asked)

    def _build_path(self, path: str, query: Mapping[str, str]) -> str:
        if query:
            return f"{path}?{urllib.parse.urlencode(query)}"
        return path

    def _get_cached(self, path: str) -> HttpResponse:
        """Send a conditional GET, and return the stored response if it is still valid."""
        self._refuse_if_nearly_used_up()
        before = self._store.read(path)
        etag = before.headers.get("etag", "") if before else ""
        answer = self._request_with_retries("GET", path, None, etag=etag)
        if answer.status == 304 and before is not None:
            return before

        answer = self._check_status(answer, "GET", path, ())
        if "etag" in answer.headers:
            self._store.write(path, answer)

        return answer

    def _refuse_if_nearly_used_up(self) -> None:
        """Leave the rest of the token's rate limit to merges and to other programs."""
        rate_limit = self._store.read_rate_limit("core")
        wait_s = rate_limit.seconds_to_wait(time.time()) if rate_limit else 0.0
        if wait_s:
            raise TemporarilyUnavailable(
                f"the rate limit of the token for {self._url} is nearly used up",
                retry_after_s=min(wait_s, 3600.0),
            )

    def _request_with_retries(
        self,
        method: str,
        path: str,
        body: object,
        *,
        etag: str = "",
        strip_suffix: str = "",
        may_repeat: bool = True,
    ) -> HttpResponse:
        """Send a request; repeat it with back-off while the server fails."""
        lost_connections = 0

        for attempt in range(_MAX_RETRIES + 1):
            backoff_s = _FIRST_BACKOFF_S * 2**attempt
            try:
                answer = self._request(method, path, body, etag, strip_suffix)
            except TemporarilyUnavailable:
                lost_connections += 1
                if method != "GET" or lost_connections > _MAX_LOST_CONNECTIONS:
                    raise
                self._wait(backoff_s)
                continue

            self._note_rate_limit(answer)
            wait_s = _retry_after_s(answer)
            is_transient = answer.status in _TRANSIENT_STATUSES or wait_s is not None
            wait_s = backoff_s if wait_s is None else max(wait_s, backoff_s)
            is_last = attempt == _MAX_RETRIES or not may_repeat
            if not is_transient or is_last or wait_s > _MAX_INLINE_WAIT_S:
                return answer

            self._wait(wait_s)

        raise AssertionError("the last attempt returns or raises")

    def _note_rate_limit(self, answer: HttpResponse) -> None:
        # GitHub's header names, then GitLab's
        for prefix in ("x-ratelimit-", "ratelimit-"):
            values = [
                answer.headers.get(prefix + name, "") for name in ("limit", "remaining", "reset")
            ]
            if all(value.isdigit() for value in values):
                limit, remaining, reset = map(int, values)
                resource = answer.headers.get(f"{prefix}resource", "core")
                self._store.write_rate_limit(resource, RateLimit(limit, remaining, reset))
                return

    def _request(
        self, method: str, path: str, body: object, etag: str = "", strip_suffix: str = ""
    ) -> HttpResponse:
        """Send one request; raise TemporarilyUnavailable if the forge is unreachable."""
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
        """Return an accepted response; raise ApiError with a remedy for others."""
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
                "the token needs write permission for pull requests, contents and statuses, "
                "and read permission for checks",
                403,
            )

        if 300 <= answer.status < 400:
            raise ApiError(
                where, "the repository has moved: set url and repository in [forge]", answer.status
            )

        if wait_s is not None or answer.status in _TRANSIENT_STATUSES:
            raise TemporarilyUnavailable(where, retry_after_s=wait_s or 0.0)

        raise ApiError(
            where, "check url, repository and the token's permissions in [forge]", answer.status
        )


def _drop_nulls(value: object) -> object:
    """Return JSON without the fields that are null."""
    if isinstance(value, dict):
        return {name: _drop_nulls(one) for name, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_drop_nulls(one) for one in value]
    return value


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
    """Read a response within its size and time limits."""
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
    if answer.status < 400:
        return None

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
