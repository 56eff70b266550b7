"""A pause of a fleet: an object in the bucket that every worker reads while it runs."""

from __future__ import annotations

import msgspec

from phasegate.storage.bucket.client import Bucket
from phasegate.typed import read_json

_PATH = "fleet/pause"


class FleetPause(msgspec.Struct, frozen=True):
    """Since when a fleet is paused. The time is empty if it is not."""

    since: str = ""


def read_pause(bucket: Bucket) -> str:
    """Return since when the fleet is paused, or an empty text."""
    found = bucket.get(_PATH)
    return _decode_pause(found.data).since if found else ""


def change_pause(bucket: Bucket, since: str) -> str:
    """Pause a fleet since a time, or with an empty text end the pause. Return the state before.

    A fleet that is paused already keeps its time.
    """
    while True:
        found = bucket.get(_PATH)
        before = _decode_pause(found.data).since if found else ""
        if bool(before) == bool(since):
            return before

        data = msgspec.json.encode(FleetPause(since))
        if bucket.replace(_PATH, data, found.etag) if found else bucket.create(_PATH, data):
            return before


def _decode_pause(data: bytes) -> FleetPause:
    try:
        return read_json(data, FleetPause)
    except msgspec.MsgspecError:
        # A pause that cannot be read counts: workers can be resumed by an order
        return FleetPause("an unknown time")
