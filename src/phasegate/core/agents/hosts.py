"""Which hosts a job may reach: names that are listed, and nothing that is not."""

from __future__ import annotations

from collections.abc import Iterable

HTTPS_PORT = 443
ANY_HOST = "*"


def is_host_allowed(host: str, port: int, patterns: Iterable[str]) -> bool:
    """Whether a pattern names this host.

    `host`, `host:port`, or `*.domain`, which is every name below the domain.

    Without a port 443 is meant. An address is a host like any other: only who lists it lets it
    through.
    """
    host = host.rstrip(".").lower()
    return any(_matches(pattern.lower(), host, port) for pattern in patterns)


def _matches(pattern: str, host: str, port: int) -> bool:
    if pattern == ANY_HOST:
        return True

    if pattern.rpartition(":")[2].isdigit():
        name, _, number = pattern.rpartition(":")
    else:
        name, _, number = (pattern, "", "")

    if port != (int(number) if number else HTTPS_PORT):
        return False

    name = name.removeprefix("[").removesuffix("]")
    if name.startswith("*."):
        return host.endswith(name[1:]) and host != name[2:]

    return host == name
