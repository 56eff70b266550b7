"""A wall clock that is wrong, for every Python program that has this folder on its path.

Shifted by CLOCK_SHIFT_S: `time.time` and `datetime.now`, from which all times in the record come. Not shifted: the
monotonic clock, as on a real machine; what is compared with times of files, since those are not shifted either; and
programs that are not Python, with them the client of the bucket: an S3 server refuses one that is 15 minutes wrong.
"""

import datetime
import os
import sys
import time

SHIFT_S = float(os.environ.get("CLOCK_SHIFT_S", "0"))
BY_FILES = ("phasegate.files", "phasegate.workspace")
_plain_time = time.time


def _time() -> float:
    asks = sys._getframe(1).f_globals.get("__name__", "")
    return _plain_time() + (0 if asks.startswith(BY_FILES) else SHIFT_S)


class _Datetime(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
        return datetime.datetime.fromtimestamp(_plain_time() + SHIFT_S, tz)


if SHIFT_S:
    time.time = _time
    datetime.datetime = _Datetime  # type: ignore[misc]
