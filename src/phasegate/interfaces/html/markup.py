"""HTML that is safe by construction: whatever is not made by `tag` is text, and is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from phasegate.core.text.visible import visible

Attributes = Mapping[str, object]


class Html(str):
    """Markup that was made here."""

    __slots__ = ()


Child = str | int | float | None | Iterable["Child"]
_VOID = ("meta", "link", "input", "br")


def tag(what: str, *inside: Attributes | Child) -> Html:
    """An element: its name and a class (`p.quiet`), attributes, children.

    An attribute that is None or False is left out; True stands by itself.
    """
    name, _, class_ = what.partition(".")
    given = f' class="{class_}"' if class_ else ""
    children: list[Child] = []
    for one in inside:
        if isinstance(one, Mapping):
            given += "".join(_attribute(key, value) for key, value in one.items())
        else:
            children.append(one)
    return Html(f"<{name}{given}>" if name in _VOID else f"<{name}{given}>{join(*children)}</{name}>")


def join(*children: Child) -> Html:
    """Elements and texts one behind the other; texts are escaped, what cannot be seen is shown."""
    return Html("".join(map(_joined, children)))


def _joined(child: Child) -> str:
    if isinstance(child, Html):
        return child
    if isinstance(child, str | int | float):
        return escape(visible(str(child), keep="\n\t"), quote=True)
    return join(*(child or ()))


def _attribute(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{escape(visible(str(value)), quote=True)}"'
