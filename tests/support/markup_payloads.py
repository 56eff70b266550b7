"""Texts that would be markup if anybody let them, and a reader that tells what became of them."""

from __future__ import annotations

from html.parser import HTMLParser

_SCRIPTS = (
    "alert(1)",
    "document.title='owned'",
    "fetch('/owned')",
    "top.location='//owned'",
    "x=1",
)
_SHAPES = (
    "<script>{0}</script>",
    "<img src=x onerror={0}>",
    '"><svg onload={0}>',
    "'><b onmouseover='{0}'>",
    '" autofocus onfocus="{0}" x="',
    "<a href='javascript:{0}'>go</a>",
    '<div hx-get="/owned" hx-trigger="load">{0}</div>',
    "</textarea></title></pre><script>{0}</script>",
    "<iframe srcdoc='&lt;script&gt;{0}&lt;/script&gt;'></iframe>",
    "]]></style><img src onerror={0}>",
)
PAYLOADS = tuple(shape.format(script) for shape in _SHAPES for script in _SCRIPTS)
_OURS = {"/static/htmx.min.js", "/static/hx-sse.min.js", "/static/board.js"}
_EXECUTED = (
    "hx-get",
    "hx-post",
    "hx-put",
    "hx-delete",
    "hx-patch",
    "hx-sse:connect",
    "href",
    "src",
    "action",
)


class Markup(HTMLParser):
    """Collects the text of a page, and whatever in it could act and is none of ours."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.trouble: list[str] = []
        self.feed(page)
        self.close()

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if (tag == "script" and given.get("src") not in _OURS) or tag in (
            "iframe",
            "object",
            "embed",
            "base",
            "img",
        ):
            self.trouble.append(tag)
        for name, value in given.items():
            to = value or ""
            leads_out = name in _EXECUTED and (
                not to.startswith(("/", "#")) or to.startswith(("//", "/owned"))
            )
            if name.startswith("on") or name == "style" or leads_out:
                self.trouble.append(f"{tag} {name}={value}")
