"""How a notification gets to its receivers: a command, webhooks, ntfy, Slack, mail. Side by side, and soon over."""

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

from phasegate.config.settings import Notify
from phasegate.core.display.notification import ENDED, SHAPES, Notification, http_message, short_reason
from phasegate.engine.project.project import Project
from phasegate.errors import ConfigError, PhasegateError
from phasegate.sandbox.run_program import run

LONGEST_S = 5.0
_SILENT = f"no answer within {LONGEST_S:g} s"


class Sent(NamedTuple):
    """A receiver, and why it was not reached; empty if it was."""

    receiver: str
    why_not: str = ""


def try_out(project: Project) -> tuple[Sent, ...]:
    """Tell everybody that this is a test."""
    if not (project.config.notify.command or project.config.notify.urls):
        raise ConfigError("no receiver is set", "set command or urls in [notify] of phasegate.toml")
    id_ = project.clock.new_id()
    what = ("", "", "this is a test", "", "phasegate status")
    return send(project, Notification(id_, ENDED, project.now(), project.root.name, *what))


def send(project: Project, told: Notification) -> tuple[Sent, ...]:
    """Send to every receiver, side by side; no longer than a few seconds, whatever they do."""
    notify, moment_s = project.config.notify, int(project.clock.time_s())
    errands = [*_errands(project, notify, told, moment_s)]
    ends: dict[str, str] = {}
    threads = [Thread(target=_kept, args=(ends, name, errand), daemon=True) for name, errand in errands]
    for thread in threads:
        thread.start()
    until_s = project.clock.monotonic_s() + LONGEST_S
    for thread in threads:
        thread.join(max(0.0, until_s - project.clock.monotonic_s()))
    return tuple(Sent(name, ends.get(name, _SILENT)) for name, _ in errands)


def _kept(ends: dict[str, str], name: str, errand: Callable[[], None]) -> None:
    try:
        errand()
    except HTTPError as error:
        ends[name] = f"it answered {error.code}"
    except PhasegateError as error:
        ends[name] = error.message
    except (OSError, ValueError, smtplib.SMTPException) as error:
        cause = getattr(error, "reason", error)
        ends[name] = _SILENT if isinstance(cause, TimeoutError) else short_reason(str(cause) or type(error).__name__)
    else:
        ends[name] = ""


def _errands(
    project: Project, notify: Notify, told: Notification, moment_s: int
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Each receiver by a name without what may be secret in its address, and how it is told."""
    if notify.command:
        yield notify.command[0], lambda: _run_command(project, notify.command, told)
    for number, given in enumerate(notify.urls, 1):
        url = os.environ.get(given[1:], "") if given.startswith("$") else given
        shown = given if given.startswith("$") else f"{url.partition(':')[0]}: address {number}"
        if not url.startswith(SHAPES):
            yield shown, _refuser(f"{given} is not set" if not url else "no address of a known kind")
        elif url.startswith("mailto:"):
            yield url, _mailer(notify, url.removeprefix("mailto:"), told)
        else:
            yield shown, _poster(url, told, moment_s, os.environ.get(notify.secret_env or "", ""))


def _run_command(project: Project, command: Iterable[str], told: Notification) -> None:
    data = msgspec.json.encode(told)
    done = run([*command], cwd=project.root, env=os.environ, stdin=data, timeout_s=LONGEST_S, output_limit=65536)
    if done.timed_out:
        raise ConfigError(f"it did not end within {LONGEST_S:g} s")
    if not done.ok:
        raise ConfigError(f"it ended with {done.exit_code if done.exit_code is not None else f'signal {done.signal}'}")


class _NoForwarding(HTTPRedirectHandler):
    """What is signed for one address goes to no other."""

    def redirect_request(self, *_args: object, **_more: object) -> None:
        return None


def _poster(url: str, told: Notification, moment_s: int, secret: str) -> Callable[[], None]:
    def post() -> None:
        message = http_message(url, told, moment_s, secret)
        request = Request(message.url, message.body, message.headers, method="POST")  # noqa: S310 - by SHAPES
        build_opener(_NoForwarding).open(request, timeout=LONGEST_S).close()

    return post


def _mailer(notify: Notify, receiver: str, told: Notification) -> Callable[[], None]:
    def mail() -> None:
        message = EmailMessage()
        message["From"] = notify.mail_from or f"phasegate@{socket.gethostname()}"
        message["To"], message["Subject"], message["Date"] = receiver, told.title, formatdate()
        message["Message-ID"] = f"<{told.id}@phasegate>"
        message.set_content(told.text)
        host, _, port = notify.smtp.partition(":")
        with smtplib.SMTP(host, int(port or 25), timeout=LONGEST_S) as peer:
            peer.send_message(message)

    return mail


def _refuser(why: str) -> Callable[[], None]:
    def refuse() -> None:
        raise ConfigError(why)

    return refuse
