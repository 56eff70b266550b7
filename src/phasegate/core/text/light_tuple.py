"""Provide a light NamedTuple for commands that must start fast.

`typing` and `dataclasses` import half the standard library.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as Light
else:

    class Light:
        """A replacement of NamedTuple for values that are only created and read.

        Its fields are its annotations.
        """

        def __init__(self, *values: object, **named: object) -> None:
            fields = self.__class__.__annotations__
            given = dict(zip(fields, values, strict=False)) | named
            for name in fields:
                setattr(self, name, given[name] if name in given else getattr(self.__class__, name))

        def _asdict(self) -> dict[str, object]:
            return {name: getattr(self, name) for name in self.__class__.__annotations__}


__all__ = ["Light"]
