"""Send a notification to its receivers: a command, webhooks, ntfy, Slack, mail."""

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
    """A receiver, and why it was not reached; empty on success."""

    receiver: str
    why_not: str = ""


def send_test_notification(project: Project) -> tuple[DeliveryResult, ...]:
    """Send a test notification to all receivers."""
    if not (project.config.notify.command or project.config.notify.urls):
        raise ConfigError(
            "no receiver is configured", "set command or urls in [notify] of phasegate.toml"
        )

    notification = Notification(
        id=project.clock.new_id(),
        type=RUN_ENDED,
        timestamp=project.now(),
        repository=project.root.name,
        feature="",
        package="",
        outcome="this is a test",
        reason="",
        command="phasegate status",
    )
    return send_notification(project, notification)


def send_notification(project: Project, notification: Notification) -> tuple[DeliveryResult, ...]:
    """Send to all receivers in parallel; return after a few seconds at the latest."""
    notify = project.config.notify
    moment_s = int(project.clock.time_s())
    deliveries = [*_make_deliveries(project, notify, notification, moment_s)]
    failures: dict[str, str] = {}
    threads = [
        Thread(target=_run_delivery, args=(failures, name, deliver), daemon=True)
        for name, deliver in deliveries
    ]
    for thread in threads:
        thread.start()

    until_s = project.clock.monotonic_s() + SEND_TIMEOUT_S
    for thread in threads:
        thread.join(max(0.0, until_s - project.clock.monotonic_s()))

    return tuple(DeliveryResult(name, failures.get(name, _TIMED_OUT)) for name, _ in deliveries)


def _run_delivery(failures: dict[str, str], name: str, deliver: Callable[[], None]) -> None:
    """Run a delivery, and store its error, or an empty text, under its name."""
    try:
        deliver()
    except HTTPError as error:
        failures[name] = f"HTTP status {error.code}"
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
    """Yield every receiver with a name that contains no secret, and a function that notifies it."""
    if notify.command:
        yield notify.command[0], lambda: _run_command(project, notify.command, notification)

    for number, given in enumerate(notify.urls, 1):
        if given.startswith("$"):
            url = os.environ.get(given[1:], "")
            name = given
        else:
            url = given
            name = f"{url.partition(':')[0]}: address {number}"

        if not url:
            yield name, _make_refuser(f"{given} is not set")
        elif not url.startswith(URL_PREFIXES):
            yield name, _make_refuser("unsupported kind of address")
        elif url.startswith("mailto:"):
            yield url, _make_mailer(notify, url.removeprefix("mailto:"), notification)
        else:
            secret = os.environ.get(notify.webhook_secret_env or "", "")
            yield name, _make_poster(url, notification, moment_s, secret)


def _run_command(project: Project, command: Iterable[str], notification: Notification) -> None:
    """Run the notification command with the notification as JSON on stdin."""
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
    if done.signal is not None:
        raise ConfigError(f"it was killed by signal {done.signal}")
    if not done.ok:
        raise ConfigError(f"it exited with code {done.exit_code}")


class _RefuseRedirects(HTTPRedirectHandler):
    """Refuses redirects: a message that is signed for one address must not go to another."""

    def redirect_request(self, *_args: object, **_more: object) -> None:
        return None


def _make_poster(
    url: str, notification: Notification, moment_s: int, secret: str
) -> Callable[[], None]:
    def post() -> None:
        message = build_http_message(url, notification, moment_s, secret)
        request = Request(message.url, message.body, message.headers, method="POST")  # noqa: S310 - checked by URL_PREFIXES
        build_opener(_RefuseRedirects).open(request, timeout=SEND_TIMEOUT_S).close()

    return post


def _make_mailer(
    notify: NotifySettings, receiver: str, notification: Notification
) -> Callable[[], None]:
    """Return a function that sends the notification by mail."""

    def mail() -> None:
        message = EmailMessage()
        message["From"] = notify.mail_from or f"phasegate@{socket.gethostname()}"
        message["To"] = receiver
        message["Subject"] = notification.title
        message["Date"] = formatdate()
        message["Message-ID"] = f"<{notification.id}@phasegate>"
        message.set_content(notification.text)
        host, _, port = notify.smtp_server.partition(":")
        with smtplib.SMTP(host, int(port or 25), timeout=SEND_TIMEOUT_S) as smtp:
            smtp.send_message(message)

    return mail


def _make_refuser(reason: str) -> Callable[[], None]:
    def refuse() -> None:
        raise ConfigError(reason)

    return refuse
