"""How a notification gets to its receivers: a command, webhooks, ntfy, Slack, mail.

Side by side, and soon over.
"""

from __future__ import annotations

import os
import smtplib
import socket
from collections.abc import Callable, Iterable, Iterator
from email.message import EmailMessage
from email.utils import formatdate
from threading import Thread
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from phasegate.config.settings import NotifySettings
from phasegate.core.display.notification import (
    RUN_ENDED,
    URL_PREFIXES,
    Notification,
    build_http_message,
    shorten_reason,
)
from phasegate.engine.project.project import Project
from phasegate.errors import ConfigError, PhasegateError
from phasegate.sandbox.run_program import run_program

SEND_TIMEOUT_S = 5.0
_TIMED_OUT = f"no answer within {SEND_TIMEOUT_S:g} s"


class DeliveryResult(NamedTuple):
    """A receiver, and why it was not reached; empty if it was."""

    receiver: str
    why_not: str = ""


def send_test_notification(project: Project) -> tuple[DeliveryResult, ...]:
    """Tell everybody that this is a test."""
    if not (project.config.notify.command or project.config.notify.urls):
        raise ConfigError("no receiver is set", "set command or urls in [notify] of phasegate.toml")

    id_ = project.clock.new_id()
    what = ("", "", "this is a test", "", "phasegate status")

    return send_notification(
        project, Notification(id_, RUN_ENDED, project.now(), project.root.name, *what)
    )


def send_notification(project: Project, notification: Notification) -> tuple[DeliveryResult, ...]:
    """Send to every receiver, side by side; no longer than a few seconds, whatever they do."""
    notify = project.config.notify
    moment_s = int(project.clock.time_s())
    errands = [*_make_deliveries(project, notify, notification, moment_s)]
    ends: dict[str, str] = {}
    threads = [
        Thread(target=_run_delivery, args=(ends, name, errand), daemon=True)
        for name, errand in errands
    ]
    for thread in threads:
        thread.start()

    until_s = project.clock.monotonic_s() + SEND_TIMEOUT_S
    for thread in threads:
        thread.join(max(0.0, until_s - project.clock.monotonic_s()))

    return tuple(DeliveryResult(name, ends.get(name, _TIMED_OUT)) for name, _ in errands)


def _run_delivery(failures: dict[str, str], name: str, deliver: Callable[[], None]) -> None:
    try:
        deliver()
    except HTTPError as error:
        failures[name] = f"it answered {error.code}"
    except PhasegateError as error:
        failures[name] = error.message
    except (OSError, ValueError, smtplib.SMTPException) as error:
        cause = getattr(error, "reason", error)
        if isinstance(cause, TimeoutError):
            failures[name] = _TIMED_OUT
        else:
            failures[name] = shorten_reason(str(cause) or type(error).__name__)
    else:
        failures[name] = ""


def _make_deliveries(
    project: Project, notify: NotifySettings, notification: Notification, moment_s: int
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Each receiver by a name without what may be secret in its address, and how it is told."""
    if notify.command:
        yield notify.command[0], lambda: _run_command(project, notify.command, notification)

    for number, given in enumerate(notify.urls, 1):
        if given.startswith("$"):
            url = os.environ.get(given[1:], "")
        else:
            url = given

        if given.startswith("$"):
            shown = given
        else:
            shown = f"{url.partition(':')[0]}: address {number}"

        if not url.startswith(URL_PREFIXES):
            yield (
                shown,
                _make_refuser(f"{given} is not set" if not url else "no address of a known kind"),
            )
        elif url.startswith("mailto:"):
            yield url, _make_mailer(notify, url.removeprefix("mailto:"), notification)
        else:
            yield (
                shown,
                _make_poster(
                    url, notification, moment_s, os.environ.get(notify.webhook_secret_env or "", "")
                ),
            )


def _run_command(project: Project, command: Iterable[str], notification: Notification) -> None:
    data = msgspec.json.encode(notification)
    done = run_program(
        [*command],
        cwd=project.root,
        env=os.environ,
        stdin=data,
        timeout_s=SEND_TIMEOUT_S,
        max_output_bytes=65536,
    )

    if done.timed_out:
        raise ConfigError(f"it did not end within {SEND_TIMEOUT_S:g} s")

    if not done.ok:
        raise ConfigError(
            f"it ended with {done.exit_code if done.exit_code is not None else f'signal {done.signal}'}"
        )


class _RefuseRedirects(HTTPRedirectHandler):
    """What is signed for one address goes to no other."""

    def redirect_request(self, *_args: object, **_more: object) -> None:
        return None


def _make_poster(
    url: str, notification: Notification, moment_s: int, secret: str
) -> Callable[[], None]:
    def post() -> None:
        message = build_http_message(url, notification, moment_s, secret)
        request = Request(message.url, message.body, message.headers, method="POST")  # noqa: S310 - by SHAPES
        build_opener(_RefuseRedirects).open(request, timeout=SEND_TIMEOUT_S).close()

    return post


def _make_mailer(
    notify: NotifySettings, receiver: str, notification: Notification
) -> Callable[[], None]:
    def mail() -> None:
        message = EmailMessage()
        message["From"] = notify.mail_from or f"phasegate@{socket.gethostname()}"
        message["To"], message["Subject"], message["Date"] = (
            receiver,
            notification.title,
            formatdate(),
        )
        message["Message-ID"] = f"<{notification.id}@phasegate>"
        message.set_content(notification.text)
        host, _, port = notify.smtp_server.partition(":")
        with smtplib.SMTP(host, int(port or 25), timeout=SEND_TIMEOUT_S) as peer:
            peer.send_message(message)

    return mail


def _make_refuser(why: str) -> Callable[[], None]:
    def refuse() -> None:
        raise ConfigError(why)

    return refuse
