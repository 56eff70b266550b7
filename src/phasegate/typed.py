"""Reads data into our types, from JSON and from plain values.

msgspec finds out what a type is made of at its first use. Two threads that do so at once can end
the process with a signal: the second sees a type half known. Here one thread at a time does it, and
nowhere else in src (ruff: TID251).
"""

from __future__ import annotations

from threading import Lock
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")
_DECODERS_LOCK = Lock()
# Of the types that are known whole
_DECODERS: dict[object, msgspec.json.Decoder[Any]] = {}


@overload
def read_json(data: bytes | str, type_: type[T]) -> T: ...
@overload
def read_json(data: bytes | str, type_: object = Any) -> Any: ...
def read_json(data: bytes | str, type_: object = Any) -> Any:
    """JSON as a value of a type. Raises msgspec.MsgspecError for what does not fit."""
    return _get_decoder(type_).decode(data)


@overload
def read_value(plain: object, type_: type[T], *, strict: bool = True) -> T: ...
@overload
def read_value(plain: object, type_: object, *, strict: bool = True) -> Any: ...
def read_value(plain: object, type_: object, *, strict: bool = True) -> Any:
    """Dicts, lists and the like as a value of a type.

    Raises msgspec.ValidationError for what does not fit.
    """
    _get_decoder(type_)
    return msgspec.convert(plain, type_, strict=strict)


def _get_decoder(type_: object) -> msgspec.json.Decoder[Any]:
    found = _DECODERS.get(type_)
    if found is None:
        with _DECODERS_LOCK:
            found = _DECODERS[type_] = msgspec.json.Decoder(type_)
    return found
