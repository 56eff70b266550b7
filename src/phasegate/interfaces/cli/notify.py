"""`phasegate notify`: try who would be told."""

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
    """Send a test to everybody whom [notify] in phasegate.toml names, and show who was reached.

    Exit 0: all were. Exit 1: somebody was not, and the reason is shown.

    \b
    Examples:
      phasegate notify
    """
    sent = send_test_notification(open_project(current_folder()))
    lines = [
        make_printable(f"{one.receiver}: {f'not told: {one.why_not}' if one.why_not else 'told'}")
        for one in sent
    ]
    print_result({"sent": sent}, "\n".join(lines), as_json)
    if any(one.why_not for one in sent):
        return 1

    return 0
