"""JSON for commands that must start at once: all of `json` costs more than the whole hook."""

from __future__ import annotations


def parse_json(text: str) -> object:
    """The value of a JSON text.

    A ValueError, StopIteration or RecursionError for anything else, NaN included.
    """
    try:
        from _json import make_scanner
    except ImportError:
        # Another Python than CPython
        from json import loads

        return loads(text)

    text = text.strip(" \t\n\r")
    try:
        value, end = make_scanner(_ScannerSettings)(text, 0)  # type: ignore[arg-type]  # the stub knows only json's own class
    except SystemError as error:
        # CPython up to 3.12 finds its own error only where `json` was imported before, and then has
        # none to raise.
        raise ValueError("no JSON") from error

    if end != len(text):
        raise ValueError("text after the JSON value")

    return value


class _ScannerSettings:
    """The scanner's settings.

    What `json.loads` uses without arguments, but NaN and Infinity are refused.
    """

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    # A ValueError for `NaN`
    parse_constant = int


def to_plain_data(value: object) -> object:
    """A value as JSON can hold it: whatever has names for its parts becomes an object."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: to_plain_data(one) for name, one in value._asdict().items()}
    if isinstance(value, (tuple, list)):
        return [to_plain_data(one) for one in value]
    if isinstance(value, dict):
        return {name: to_plain_data(one) for name, one in value.items()}

    if hasattr(value, "__struct_fields__"):
        from msgspec import to_builtins

        return to_builtins(value)

    return value
