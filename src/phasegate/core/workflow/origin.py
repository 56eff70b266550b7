"""Who gave an order."""

from __future__ import annotations

import msgspec


class OrderOrigin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The person, the door that they came through, the agent that asked.

    All empty: recorded before it was kept.
    """

    person: str = ""
    # Cli, or whichever other one; `engine` where the engine goes on by itself
    door: str = ""
    agent: str = ""


UNKNOWN_ORIGIN = OrderOrigin()
ENGINE_ORIGIN = OrderOrigin(door="engine")
