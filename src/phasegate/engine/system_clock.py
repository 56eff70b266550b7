"""The clock, the chance and the ids of this machine."""

from __future__ import annotations

import random
import time
from uuid import uuid4


class SystemClock:
    """Fulfils `ports.Clock`."""

    def time_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()

    def chance(self) -> float:
        return random.random()  # noqa: S311 - jitter, no secret

    def new_id(self) -> str:
        return str(uuid4())
