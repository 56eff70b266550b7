"""The hosts that a job may reach: an allow list."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

HTTPS_PORT = 443
ANY_HOST = "*"
# Every host but this machine: for agents whose hosts are not known. No setting can contain it.
PUBLIC_HOSTS = "<public>"


def is_host_allowed(host: str, port: int, patterns: Iterable[str]) -> bool:
    """Return whether a pattern names this host.

    A pattern is `host`, `host:port` or `*.domain`, which matches every name below the domain.
    The default port is 443. An IP address must be listed like any other host.
    """
    host = host.rstrip(".").lower()
    return any(_matches(pattern.lower(), host, port) for pattern in patterns)


def is_own_address(address: str) -> bool:
    """Return whether an IP address is local: loopback, unspecified, link-local or multicast.

    That includes link-local addresses, where clouds serve the credentials of a machine.
    """
    ip = ip_address(address.partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None)
    ip = mapped or ip
    return ip.is_loopback or ip.is_unspecified or ip.is_link_local or ip.is_multicast


def _matches(pattern: str, host: str, port: int) -> bool:
    """Return whether a host and port match a pattern such as `*.example.org:8443`."""
    if pattern in (ANY_HOST, PUBLIC_HOSTS):
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
