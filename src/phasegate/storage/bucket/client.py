"""A client for S3 buckets: four calls, with errors classified by whether a retry helps.

No other module uses obstore.

Objects are never deleted, and only replaced by a caller that has read the current version: `create`
never replaces an object, and `replace` only the version that was read. So a request that arrives
late, or twice, changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from phasegate.errors import EnvironmentUnavailable, Interrupted, TemporarilyUnavailable

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Store

REQUEST_TIMEOUT_S = 20
CONNECT_TIMEOUT_S = 5
_INITIAL_BACKOFF_S = 0.1
_MAX_BACKOFF_S = 5.0
T = TypeVar("T")
_ERROR_CODE = re.compile(r"<Code>(\w+)</Code>")
_HTTP_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_RETRYABLE_STATUSES = {"408", "425", "429"}
_REFUSED_STATUSES = {"401", "403"}
_REMEDIES = {
    "NoSuchBucket": "create the bucket, or name another one in [storage]",
    "RequestTimeTooSkewed": "this machine's clock is wrong by more than 15 minutes: correct it",
    "SignatureDoesNotMatch": "check the secret key",
    "InvalidAccessKeyId": "check the access key",
    "AccessDenied": "the key needs s3:GetObject, s3:PutObject and s3:ListBucket here",
}


class BucketAddress(NamedTuple):
    """The address of a bucket: endpoint, name, object prefix and region.

    An empty endpoint means AWS.
    """

    endpoint: str
    bucket: str
    prefix: str
    region: str

    def __str__(self) -> str:
        if self.endpoint:
            at = f" at {self.endpoint}"
        else:
            at = ""
        return f"s3://{'/'.join(filter(None, (self.bucket, self.prefix)))}{at}"


class StoredObject(NamedTuple):
    """An object as it was read, and the ETag of its version."""

    data: bytes
    etag: str
    # Time of the server's clock
    modified_at_s: float = 0.0


@lru_cache(maxsize=8)
def _get_s3_store(address: BucketAddress, credentials: tuple[str, str] | None) -> S3Store:
    """Return the obstore client of a bucket; the process keeps one client per bucket.

    Creating a client takes longer than a request, and a client reuses its connections.
    """
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise EnvironmentUnavailable(
            "[storage] needs a package that is not installed",
            "in a checkout of Phasegate: pip install '.[s3]'",
        ) from error

    config: S3Config = {"region": address.region}
    if address.endpoint:
        config["endpoint"] = address.endpoint
    if credentials:
        config["access_key_id"], config["secret_access_key"] = credentials

    return S3Store(
        address.bucket,
        prefix=address.prefix or None,
        config=config,
        client_options={
            "allow_http": address.endpoint.startswith("http://"),
            "timeout": f"{REQUEST_TIMEOUT_S}s",
            "connect_timeout": f"{CONNECT_TIMEOUT_S}s",
        },
        # The caller decides how long to retry, and repeats the same bytes
        retry_config={"max_retries": 0},
    )


class Bucket:
    """A bucket whose requests are retried for `retry_timeout_s` while it is unavailable.

    Thread-safe.
    """

    def __init__(
        self,
        address: BucketAddress,
        credentials: tuple[str, str] | None,
        retry_timeout_s: float = 0.0,
        repository: str = "",
        stop: Event | None = None,
    ) -> None:
        """Open a bucket.

        `repository` is the id of the repository whose record is read and written: logs refuse the
        pages of every other one. With `stop`, a service uses the bucket: retries end with
        Interrupted when it is set, and refusals are retried too, because keys are exchanged and
        permissions are restored while it runs.
        """
        self.address = address
        self.repository = repository
        self._credentials = credentials
        self._retry_timeout_s = retry_timeout_s
        self._stop = stop
        self._store = _get_s3_store(address, credentials)

    def at(self, address: BucketAddress, repository: str = "") -> Bucket:
        """Return another part of this bucket, with the record of a repository."""
        return Bucket(
            address,
            self._credentials,
            self._retry_timeout_s,
            repository=repository,
            stop=self._stop,
        )

    def get(self, path: str) -> StoredObject | None:
        """Return an object, or None if it does not exist."""
        import obstore

        def ask() -> StoredObject:
            result = obstore.get(self._store, path)
            meta = result.meta
            return StoredObject(
                bytes(result.bytes()), meta["e_tag"] or "", meta["last_modified"].timestamp()
            )

        try:
            return self._call_with_retries(ask)
        except FileNotFoundError:
            return None

    def create(self, path: str, data: bytes, *, no_retry: bool = False) -> bool:
        """Create an object; return False if the name already exists.

        The existing object may be identical, if the response to an earlier attempt was lost. With
        `no_retry`, an unavailable bucket is an immediate error.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            self._call_with_retries(
                lambda: obstore.put(self._store, path, data, mode="create", use_multipart=False),
                no_retry=no_retry,
            )
        except AlreadyExistsError:
            return False

        return True

    def replace(self, path: str, data: bytes, etag: str) -> bool:
        """Replace an object if its current version is still `etag`.

        Return False if another version is current.
        """
        import obstore
        from obstore.exceptions import PreconditionError

        try:
            self._call_with_retries(
                lambda: obstore.put(
                    self._store, path, data, mode={"e_tag": etag}, use_multipart=False
                )
            )
        except (PreconditionError, FileNotFoundError):
            return False

        return True

    def list_paths(self, folder: str, after: str = "") -> list[str]:
        """Return the paths below a folder in sorted order, starting after `after`."""
        import obstore

        def ask() -> list[str]:
            pages = obstore.list(self._store, f"{folder}/", offset=after or None)
            return sorted(about["path"] for page in pages for about in page)

        return self._call_with_retries(ask)

    def list_folders(self, folder: str) -> list[str]:
        """Return the names of the subfolders of a folder."""
        import obstore

        found = self._call_with_retries(
            lambda: obstore.list_with_delimiter(self._store, f"{folder}/")
        )["common_prefixes"]
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    def _call_with_retries(self, call: Callable[[], T], *, no_retry: bool = False) -> T:
        until_s = monotonic() + self._retry_timeout_s

        def asked() -> T:
            with self._translate_errors():
                return call()

        wait = (self._stop or Event()).wait
        return retry_with_backoff(asked, lambda: no_retry or monotonic() >= until_s, wait)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Convert obstore's errors to Phasegate's, by who must act.

        Errors that the caller handles are passed through.
        """
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        try:
            yield
        except (AlreadyExistsError, PreconditionError):
            raise
        except FileNotFoundError as error:
            # A missing bucket must not be reported as a missing object
            if "NoSuchBucket" in str(error):
                raise self._error_from_text(str(error)) from None
            raise
        except (BaseError, OSError, ValueError) as error:
            # The details that obstore adds are long, and contain headers
            raise self._error_from_text(str(error)) from None

    def _error_from_text(self, text: str) -> EnvironmentUnavailable:
        """Create an error from the text of the S3 library."""
        code = _ERROR_CODE.search(text)
        status = _HTTP_STATUS.search(text)

        if code:
            said = code[1]
        elif status:
            said = f"status {status[1]}"
        else:
            said = text.splitlines()[0].rpartition(" - ")[2][:200]

        if status and status[1].startswith("4") and status[1] not in _RETRYABLE_STATUSES:
            remedy = _REMEDIES.get(said, "check [storage] and its keys")
            message = f"{self.address} refused the request: {said}"
            if self._stop is not None and status[1] in _REFUSED_STATUSES:
                return TemporarilyUnavailable(message, remedy)
            return EnvironmentUnavailable(message, remedy)

        return TemporarilyUnavailable(
            f"{self.address} is unavailable: {said}",
            "the copy is retried automatically; to retry now, run: phasegate audit push",
        )


def retry_with_backoff(
    call: Callable[[], T], should_give_up: Callable[[], bool], wait: Callable[[float], bool]
) -> T:
    """Repeat a call with exponential back-off while the bucket is unavailable.

    `wait` returns True if a stop was requested.
    """
    pause_s = _INITIAL_BACKOFF_S

    while True:
        try:
            return call()
        except TemporarilyUnavailable:
            if should_give_up():
                raise

        if wait(pause_s):
            raise Interrupted

        pause_s = min(pause_s * 2, _MAX_BACKOFF_S)


def put_append_only(bucket: Bucket, path: str, data: bytes) -> bool:
    """Upload a file that only grows, and keep an existing version that is longer.

    Return False if the existing object is not an earlier or later version of the file.
    """
    while not bucket.create(path, data):
        found = bucket.get(path)
        if found is None:
            continue
        if found.data.startswith(data):
            return True
        if not data.startswith(found.data):
            return False
        if bucket.replace(path, data, found.etag):
            return True

    return True
