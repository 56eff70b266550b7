"""A bucket of an S3 server: four calls, and errors sorted by whether waiting helps. The only user of obstore.

Nothing here is deleted, and nothing is written over that was not read before: `create` never replaces an object, and
`replace` only the very one that was read. So a request that arrives late, or twice, changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from phasegate.errors import EnvironmentUnavailable, Interrupted, TryLater

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Store

CALL_WITHIN_S, CONNECT_WITHIN_S = 20, 5
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
T = TypeVar("T")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_WAITING_HELPS = {"408", "425", "429"}
_REMEDIES = {
    "NoSuchBucket": "make the bucket, or name another one in [storage]",
    "RequestTimeTooSkewed": "the clock of this machine is wrong by more than 15 minutes: set it",
    "SignatureDoesNotMatch": "check the secret key",
    "InvalidAccessKeyId": "check the access key",
    "AccessDenied": "the key needs s3:GetObject, s3:PutObject and s3:ListBucket here",
}


class BucketAddress(NamedTuple):
    """Where a bucket is: an endpoint (empty: AWS), its name, and what all names in it begin with."""

    endpoint: str
    bucket: str
    prefix: str
    region: str

    def __str__(self) -> str:
        at = f" at {self.endpoint}" if self.endpoint else ""
        return f"s3://{'/'.join(filter(None, (self.bucket, self.prefix)))}{at}"


class StoredObject(NamedTuple):
    """An object as it was read, and what names this version of it."""

    data: bytes
    tag: str
    modified_s: float = 0.0  # by the server's clock


@lru_cache(maxsize=8)
def _store_at(address: BucketAddress, keys: tuple[str, str] | None) -> S3Store:
    """One client for each bucket in a process: to make one costs more than a call, and it keeps its connections."""
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise EnvironmentUnavailable(
            "[storage] needs a package that is not installed", "pip install 'phasegate[s3]'"
        ) from error
    config: S3Config = {"region": address.region}
    if address.endpoint:
        config["endpoint"] = address.endpoint
    if keys:
        config["access_key_id"], config["secret_access_key"] = keys
    return S3Store(
        address.bucket,
        prefix=address.prefix or None,
        config=config,
        client_options={
            "allow_http": address.endpoint.startswith("http://"),
            "timeout": f"{CALL_WITHIN_S}s",
            "connect_timeout": f"{CONNECT_WITHIN_S}s",
        },
        retry_config={"max_retries": 0},  # whoever calls knows how long to be patient, and repeats the same bytes
    )


class Bucket:
    """A bucket, which is waited for so long when it is away. Threads may share it."""

    def __init__(self, address: BucketAddress, keys: tuple[str, str] | None, within_s: float = 0.0) -> None:
        self.address, self._within_s = address, within_s
        self._store = _store_at(address, keys)

    def get(self, path: str) -> StoredObject | None:
        """An object; None if there is none."""
        import obstore

        def ask() -> StoredObject:
            result = obstore.get(self._store, path)
            meta = result.meta
            return StoredObject(bytes(result.bytes()), meta["e_tag"] or "", meta["last_modified"].timestamp())

        try:
            return self._answer(ask)
        except FileNotFoundError:
            return None

    def create(self, path: str, data: bytes, *, once: bool = False) -> bool:
        """Make an object; False if there is one of that name, which may be ours: an answer can get lost.

        `once`: do not wait for a bucket that is away.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            self._answer(lambda: obstore.put(self._store, path, data, mode="create", use_multipart=False), once=once)
        except AlreadyExistsError:
            return False
        return True

    def replace(self, path: str, data: bytes, tag: str) -> bool:
        """Put data in the place of the version that was read; False if that is not there any longer."""
        import obstore
        from obstore.exceptions import PreconditionError

        try:
            self._answer(lambda: obstore.put(self._store, path, data, mode={"e_tag": tag}, use_multipart=False))
        except (PreconditionError, FileNotFoundError):
            return False
        return True

    def names(self, folder: str, after: str = "") -> list[str]:
        """The paths below a folder, sorted, those behind one of them."""
        import obstore

        def ask() -> list[str]:
            pages = obstore.list(self._store, f"{folder}/", offset=after or None)
            return sorted(about["path"] for page in pages for about in page)

        return self._answer(ask)

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder."""
        import obstore

        found = self._answer(lambda: obstore.list_with_delimiter(self._store, f"{folder}/"))["common_prefixes"]
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    def _answer(self, ask: Callable[[], T], *, once: bool = False) -> T:
        until_s = monotonic() + self._within_s

        def asked() -> T:
            with self._explained():
                return ask()

        return patiently(asked, lambda: once or monotonic() >= until_s, Event().wait)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say what an error means and who must act. What the caller can use passes as it is."""
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        try:
            yield
        except (AlreadyExistsError, PreconditionError):
            raise
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):  # it is no answer to the question whether an object is there
                raise self._trouble(str(error)) from None
            raise
        except (BaseError, OSError, ValueError) as error:
            raise self._trouble(str(error)) from None  # what obstore adds is long, and has headers in it

    def _trouble(self, text: str) -> EnvironmentUnavailable:
        code, status = _CODE.search(text), _STATUS.search(text)
        said = code[1] if code else f"status {status[1]}" if status else text.splitlines()[0].rpartition(" - ")[2][:200]
        if status and status[1].startswith("4") and status[1] not in _WAITING_HELPS:
            remedy = _REMEDIES.get(said, "check [storage] and its keys")
            return EnvironmentUnavailable(f"{self.address} refuses: {said}", remedy)
        return TryLater(f"{self.address} does not answer: {said}", "it is tried again; or see: phasegate audit push")


def patiently(call: Callable[[], T], gives_up: Callable[[], bool], wait: Callable[[float], bool]) -> T:
    """Ask again what is away, less and less often, with the same call. `wait` says whether somebody wants an end."""
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return call()
        except TryLater:
            if gives_up():
                raise
        if wait(pause_s):
            raise Interrupted
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


def put_grown(bucket: Bucket, path: str, data: bytes) -> bool:
    """Put in place a file that only grows: whatever begins with it may be there. False: another file is."""
    while not bucket.create(path, data):
        found = bucket.get(path)
        if found is None:
            continue
        if found.data.startswith(data):
            return True
        if not data.startswith(found.data):
            return False
        if bucket.replace(path, data, found.tag):
            return True
    return True
