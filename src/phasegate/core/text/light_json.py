"""Parse JSON in commands that must start fast: importing `json` takes longer than the hook."""

from __future__ import annotations


def parse_json(text: str) -> object:
    """Parse a JSON text.

    Raise ValueError, StopIteration or RecursionError for anything else, NaN included.
    """
    try:
        from _json import make_scanner
    except ImportError:
        # Not CPython
        from json import loads

        return loads(text)

    text = text.strip(" \t\n\r")
    try:
        value, end = make_scanner(_ScannerSettings)(text, 0)  # type: ignore[arg-type]
    except SystemError as error:
        # CPython up to 3.12 raises its own error only if `json` was imported before.
        raise ValueError("not JSON") from error

    if end != len(text):
        raise ValueError("text after the JSON value")

    return value


class _ScannerSettings:
    """The settings of the C scanner.

    They are the defaults of `json.loads`, except that NaN and Infinity are refused.
    """

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    # int("NaN") raises ValueError
    parse_constant = int


def to_plain_data(value: object) -> object:
    """Convert a value for JSON: records and structs become objects."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: to_plain_data(field) for name, field in value._asdict().items()}
    if isinstance(value, (tuple, list)):
        return [to_plain_data(item) for item in value]
    if isinstance(value, dict):
        return {name: to_plain_data(item) for name, item in value.items()}

    if hasattr(value, "__struct_fields__"):
        from msgspec import to_builtins

        return to_builtins(value)

    return value
