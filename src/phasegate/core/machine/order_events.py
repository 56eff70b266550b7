"""The event that each order records."""

from __future__ import annotations

from phasegate.core.machine import feature_events as events
from phasegate.core.workflow.origin import UNKNOWN_ORIGIN, OrderOrigin


def build_order_event(
    name: str,
    text: str = "",
    phase: str = "",
    by: OrderOrigin = UNKNOWN_ORIGIN,
    *,
    at_forge: bool = False,
) -> events.AnyFeatureEvent:
    """Build the event of an order in `workflow.orders.ORDERS`.

    `phase` is the target of `back`. With `at_forge`, `complete` merges on the forge.
    """
    built: dict[str, events.AnyFeatureEvent] = {
        "advance": events.Advanced(by),
        "retry": events.Retried(by),
        "resolve": events.Resolved(text, by),
        "back": events.WentBack(phase, text, by),
        "complete": events.CompletionRequested(by, at_forge),
        "escalate": events.Escalated(text, by=by),
        "cancel": events.Cancelled(text, by),
    }
    return built[name]
