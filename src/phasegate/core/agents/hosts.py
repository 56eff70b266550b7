"""The hosts that a job may reach: an allow list."""

from __future__ import annotations

from collections.abc import Iterable

HTTPS_PORT = 443
ANY_HOST = "*"


def is_host_allowed(host: str, port: int, patterns: Iterable[str]) -> bool:
    """Return whether a pattern names this host.

    A pattern is `host`, `host:port` or `*.domain`, which matches every name below the domain.
    The default port is 443. An IP address must be listed like any other host.
    """
    host = host.rstrip(".").lower()
    return any(_matches(pattern.lower(), host, port) for pattern in patterns)


def _matches(pattern: str, host: str, port: int) -> bool:
    if pattern == ANY_HOST:
        return True

    name = pattern
    allowed_port = HTTPS_PORT
    before, _, number = pattern.rpartition(":")
    if number.isdigit():
        name = before
        allowed_port = int(number)

    if port != allowed_port:
        return False

    name = name.removeprefix("[").removesuffix("]")
    if name.startswith("*."):
        return host.endswith(name[1:]) and host != name[2:]

    return host == name
