"""Find the secret values of an environment or a sign-in file, to redact them from logs."""

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
    """Return True if the name suggests that the variable has a secret value."""
    return _SECRET_NAME.search(name) is not None


def find_env_secrets(env: Mapping[str, str], names: Iterable[str]) -> tuple[bytes, ...]:
    """Return the secrets of these variables: by name, in URLs, and in JSON values."""
    values: set[str] = set()

    for name in names:
        value = env.get(name, "")
        if is_secret_name(name):
            values.add(value)
        else:
            values.update(_find_passwords(value))

        parsed = _parse_json(value.encode("utf-8", "surrogateescape"))
        values.update(_find_strings(parsed, secret=False))

    return _encode_long_values(values)


def find_file_secrets(data: bytes) -> tuple[bytes, ...]:
    """Return the secrets of a sign-in file."""
    return _encode_long_values(_find_strings(_parse_json(data), secret=False))


def _encode_long_values(values: Iterable[str]) -> tuple[bytes, ...]:
    long_values = [value for value in values if len(value) >= MIN_SECRET_BYTES]
    return tuple(sorted({value.encode("utf-8", "surrogateescape") for value in long_values}))


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
    """Yield the strings below a name that suggests a secret."""
    if depth > _MAX_DEPTH:
        return

    if isinstance(value, str) and secret:
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _find_strings(item, secret=secret, depth=depth + 1)
    elif isinstance(value, dict):
        for name, item in value.items():
            has_secret_name = not isinstance(item, dict) and is_secret_name(str(name))
            is_secret = has_secret_name or (secret and not isinstance(item, str))
            yield from _find_strings(item, secret=is_secret, depth=depth + 1)
