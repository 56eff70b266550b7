"""HTML that is safe by construction: whatever is not made by `tag` is text, and is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from phasegate.core.text.visible import escape_unprintable

Attributes = Mapping[str, object]


class Html(str):
    """Markup that was made here."""

    __slots__ = ()


Child = str | int | float | None | Iterable["Child"]
_VOID_ELEMENTS = ("meta", "link", "input", "br")


def tag(selector: str, *contents: Attributes | Child) -> Html:
    """An element: its name and a class (`p.quiet`), attributes, children.

    An attribute that is None or False is left out; True stands by itself.
    """
    name, _, class_ = selector.partition(".")
    given = f' class="{class_}"' if class_ else ""
    children: list[Child] = []

    for one in contents:
        if isinstance(one, Mapping):
            given += "".join(_render_attribute(key, value) for key, value in one.items())
        else:
            children.append(one)

    return Html(
        f"<{name}{given}>"
        if name in _VOID_ELEMENTS
        else f"<{name}{given}>{join_html(*children)}</{name}>"
    )


def join_html(*children: Child) -> Html:
    """Elements and texts one behind the other; texts are escaped, what cannot be seen is shown."""
    return Html("".join(map(_render_child, children)))


def _render_child(child: Child) -> str:
    if isinstance(child, Html):
        return child
    if isinstance(child, str | int | float):
        return escape(escape_unprintable(str(child), keep="\n\t"), quote=True)
    return join_html(*(child or ()))


def _render_attribute(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    return f' {name}="{escape(escape_unprintable(str(value)), quote=True)}"'
