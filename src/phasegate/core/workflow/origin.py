"""The origin of an order."""

from __future__ import annotations

import msgspec


class OrderOrigin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The user, the interface and the agent that gave an order.

    All fields are empty in journals that were written before the origin was recorded.
    """

    person: str = ""
    # cli, mcp, board or another interface; `engine` if the engine continues by itself
    door: str = ""
    agent: str = ""


UNKNOWN_ORIGIN = OrderOrigin()
ENGINE_ORIGIN = OrderOrigin(door="engine")
