"""`phasegate notify`: send a test notification."""

from __future__ import annotations

import click

from phasegate.engine.notify.send import send_test_notification
from phasegate.engine.project.project import open_project
from phasegate.interfaces.cli.render import (
    current_folder,
    json_option,
    make_printable,
    print_result,
)


@click.command()
@json_option
def notify(as_json: bool) -> int:
    """Send a test notification to every receiver of [notify] in phasegate.toml.

    Exit 0: all were delivered. Exit 1: at least one was not; the reason is shown.

    \b
    Examples:
      phasegate notify
    """
    sent = send_test_notification(open_project(current_folder()))
    lines = []
    for delivery in sent:
        outcome = f"not delivered: {delivery.why_not}" if delivery.why_not else "delivered"
        lines.append(make_printable(f"{delivery.receiver}: {outcome}"))

    print_result({"sent": sent}, "\n".join(lines), as_json)
    if any(delivery.why_not for delivery in sent):
        return 1

    return 0
