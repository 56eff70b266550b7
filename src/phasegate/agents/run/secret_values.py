"""Which values of an environment or of a sign-in are secret, so that they can be kept out of logs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote, urlsplit

import msgspec

from phasegate.core.agents.secrets import MIN_SECRET_BYTES
from phasegate.typed import read_json

_SECRET_NAME = re.compile(
    r"key|token|secret|passw|credential|auth|cookie|bearer|session|^(?:access|refresh)$", re.I
)
_MAX_DEPTH = 20


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret, as names go."""
    return _SECRET_NAME.search(name) is not None


def find_env_secrets(env: Mapping[str, str], names: Iterable[str]) -> tuple[bytes, ...]:
    """The secrets among these variables.

    By name, the passwords of addresses, and what is secret in a JSON value.
    """
    found: set[str] = set()

    for name in names:
        value = env.get(name, "")
        found |= {value} if _SECRET_NAME.search(name) else set(_find_passwords(value))
        found |= set(
            _find_strings(_parse_json(value.encode("utf-8", "surrogateescape")), secret=False)
        )

    return _encode_long_values(found)


def find_file_secrets(data: bytes) -> tuple[bytes, ...]:
    """The secrets of a sign-in file."""
    return _encode_long_values(_find_strings(_parse_json(data), secret=False))


def _encode_long_values(values: Iterable[str]) -> tuple[bytes, ...]:
    return tuple(
        sorted(
            {
                value.encode("utf-8", "surrogateescape")
                for value in values
                if len(value) >= MIN_SECRET_BYTES
            }
        )
    )


def _find_passwords(value: str) -> Iterator[str]:
    if "@" not in value or "://" not in value:
        return

    try:
        password = urlsplit(value).password or ""
    except ValueError:
        return

    yield from (password, unquote(password))


def _parse_json(data: bytes) -> object:
    if not data.lstrip().startswith((b"{", b"[")):
        return None

    try:
        parsed: object = read_json(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None

    return parsed


def _find_strings(value: object, *, secret: bool, depth: int = 0) -> Iterator[str]:
    """Strings below a name that tells of a secret."""
    if depth > _MAX_DEPTH:
        return

    if isinstance(value, str) and secret:
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _find_strings(item, secret=secret, depth=depth + 1)
    elif isinstance(value, dict):
        for name, item in value.items():
            named = not isinstance(item, dict) and bool(_SECRET_NAME.search(str(name)))
            yield from _find_strings(
                item, secret=named or (secret and not isinstance(item, str)), depth=depth + 1
            )
