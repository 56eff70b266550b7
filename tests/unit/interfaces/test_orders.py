"""Every interface offers the orders of one table."""

from __future__ import annotations

import msgspec

from phasegate.core.display.status import SHORT_ORDERS
from phasegate.core.machine.order_events import build_order_event
from phasegate.core.workflow.orders import ORDERS
from phasegate.interfaces.board.pages import _ORDER_BUTTONS
from phasegate.interfaces.cli.commands import COMMANDS
from phasegate.interfaces.mcp.tool_arguments import DecideArguments


def test_every_order_has_an_event_a_command_and_a_button() -> None:
    for name in ORDERS:
        build_order_event(name, "text", "01-requirements")
    assert {*ORDERS} <= {*COMMANDS}
    assert {*ORDERS} | {"run", "stop"} == {*_ORDER_BUTTONS}
    assert {*ORDERS} < {*SHORT_ORDERS}


def test_the_mcp_schema_lists_the_orders() -> None:
    schema = msgspec.json.schema(DecideArguments)["$defs"]["DecideArguments"]
    assert schema["properties"]["order"]["enum"] == sorted([*ORDERS, "answer"])
