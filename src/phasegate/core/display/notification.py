"""Notifications: their content, formats and signature.

A notification contains only fixed texts and a short reason.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import NamedTuple

import msgspec

from phasegate.core.forge.outgoing_text import defuse_triggers
from phasegate.core.text.visible import escape_unprintable
from phasegate.errors import ConfigError

MAX_REASON_CHARS = 200
USER_NEEDED = "person.needed"
RUN_ENDED = "run.ended"
URL_PREFIXES = (
    "https://",
    "http://",
    "ntfy+https://",
    "ntfy+http://",
    "slack+https://",
    "slack+http://",
    "mailto:",
)
# Prefix of the Standard Webhooks specification; the rest is base64
_SECRET_PREFIX = "whsec_"  # noqa: S105


class Notification(msgspec.Struct, frozen=True):
    """One notification, as a program receives it. `id` is stable across repeated deliveries."""

    id: str
    # person.needed or run.ended
    type: str
    timestamp: str
    repository: str
    feature: str
    # Empty if it is about the feature
    package: str
    # blocked, last gate passed, completed, stopped at a gate, failed, DONE
    outcome: str
    reason: str
    # The command to type next; empty if there is nothing to do
    command: str

    @property
    def title(self) -> str:
        """One line of plain text."""
        what = f"{self.feature} {self.package}".rstrip()
        return ": ".join(part for part in (self.repository, what, self.outcome) if part)

    @property
    def text(self) -> str:
        lines = (self.title, self.reason, f"then: {self.command}" if self.command else "")
        return "\n".join(line for line in lines if line)


class HttpMessage(NamedTuple):
    """An HTTP message to post."""

    url: str
    body: bytes
    headers: dict[str, str]


def shorten_reason(reason: str) -> str:
    """Return the reason as one line of bounded length, without terminal control characters."""
    line = escape_unprintable(" ".join(reason.split()))
    if len(line) <= MAX_REASON_CHARS:
        return line
    return f"{line[: MAX_REASON_CHARS - 3]}..."


def build_http_message(
    url: str, notification: Notification, timestamp_s: int, secret: str = ""
) -> HttpMessage:
    """Build the message in the format that the URL selects: ntfy, Slack or Standard Webhooks."""
    if url.startswith(("ntfy+", "slack+")):
        shape, _, plain = url.partition("+")
    else:
        shape, _, plain = ("", "", url)

    if shape == "ntfy":
        if notification.type == USER_NEEDED:
            tag = "warning"
        else:
            tag = "white_check_mark"

        headers = {
            "Title": _to_ascii_header(notification.title),
            "Tags": tag,
            "Content-Type": "text/plain; charset=utf-8",
        }
        return HttpMessage(plain, notification.text.encode(), headers)

    if shape == "slack":
        return HttpMessage(
            plain,
            msgspec.json.encode({"text": _escape_for_slack(notification)}),
            {"Content-Type": "application/json"},
        )

    body = msgspec.json.encode(
        {
            "type": notification.type,
            "timestamp": notification.timestamp,
            "data": msgspec.structs.asdict(notification),
        }
    )

    headers = {
        "Content-Type": "application/json",
        "webhook-id": notification.id,
        "webhook-timestamp": str(timestamp_s),
    }
    if secret:
        headers["webhook-signature"] = (
            f"v1,{_signature(secret, notification.id, timestamp_s, body)}"
        )

    return HttpMessage(plain, body, headers)


def _signature(secret: str, id_: str, timestamp_s: int, body: bytes) -> str:
    """Sign as https://www.standardwebhooks.com specifies: HMAC-SHA256 over id, time and body."""
    try:
        key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except binascii.Error as error:
        raise ConfigError(
            "the webhook secret is not valid base64",
            f"set it to {_SECRET_PREFIX} followed by base64",
        ) from error

    signed = hmac.digest(key, b"%s.%d.%s" % (id_.encode(), timestamp_s, body), "sha256")
    return base64.b64encode(signed).decode()


def _escape_for_slack(notification: Notification) -> str:
    """Return the text without markup: `<!channel>` calls everyone, and a link hides its address.

    The reason may be in the words of an agent.
    """
    safe = msgspec.structs.replace(notification, reason=defuse_triggers(notification.reason))
    return safe.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _to_ascii_header(text: str) -> str:
    return text.encode("ascii", "replace").decode()
