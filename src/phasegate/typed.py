"""Convert JSON and plain values to typed objects.

msgspec analyses a type on its first use. Two threads that do so at once can crash the process: the
second one sees a half-initialized type. Therefore this module builds every decoder under a lock,
and no other module in src calls msgspec for that (ruff: TID251).
"""

from __future__ import annotations

from threading import Lock
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")
_DECODERS_LOCK = Lock()
# Decoders of the types that are fully analyzed.
_DECODERS: dict[object, msgspec.json.Decoder[Any]] = {}


@overload
def read_json(data: bytes | str, type_: type[T]) -> T: ...
@overload
def read_json(data: bytes | str, type_: object = Any) -> Any: ...
def read_json(data: bytes | str, type_: object = Any) -> Any:
    """Decode JSON into a type. Raises msgspec.MsgspecError for invalid data."""
    return _get_decoder(type_).decode(data)


@overload
def read_value(plain: object, type_: type[T], *, strict: bool = True) -> T: ...
@overload
def read_value(plain: object, type_: object, *, strict: bool = True) -> Any: ...
def read_value(plain: object, type_: object, *, strict: bool = True) -> Any:
    """Convert dicts, lists and scalars to a type.

    Raises msgspec.ValidationError for invalid data.
    """
    _get_decoder(type_)
    return msgspec.convert(plain, type_, strict=strict)


def _get_decoder(type_: object) -> msgspec.json.Decoder[Any]:
    """Return the cached decoder of a type.

    It is built under the lock: msgspec's first analysis of a type is not thread-safe.
    """
    decoder = _DECODERS.get(type_)
    if decoder is None:
        with _DECODERS_LOCK:
            decoder = msgspec.json.Decoder(type_)
            _DECODERS[type_] = decoder
    return decoder
