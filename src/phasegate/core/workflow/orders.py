"""The orders that a user can give a feature. Command line, board and MCP share this table.

`status` loads this module: it imports only modules that are loaded anyway.
"""

from __future__ import annotations

from typing import NamedTuple


class Order(NamedTuple):
    """An order that changes the state of a feature."""

    name: str
    # completes the sentence "the client asks to ..."
    effect: str
    # refused without a text that says how or why
    needs_text: bool = False
    # a run can continue after it
    resumes: bool = True
    # an agent may never give it without a confirmation by the user, whatever is configured
    user_only: bool = False


ORDERS = {
    order.name: order
    for order in (
        Order("advance", effect="continue with the next phase"),
        Order("retry", effect="start another round of the phase"),
        Order(
            "resolve",
            effect="mark the blocker as resolved and try the blocked step again",
            needs_text=True,
        ),
        Order("back", effect="return the feature to an earlier phase", needs_text=True),
        Order("complete", effect="archive the feature and MERGE it", user_only=True),
        Order(
            "escalate",
            effect="stop the workflow until a user decides",
            needs_text=True,
            resumes=False,
        ),
        Order(
            "cancel",
            effect="END the workflow without a merge; its branches are kept",
            needs_text=True,
            resumes=False,
            user_only=True,
        ),
    )
}
