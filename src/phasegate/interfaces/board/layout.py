"""What is around every page of the board, and the small parts that pages are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import quote, urlencode

from phasegate.interfaces.html.markup import Child, Html, tag

MAX_TILES = 50
_NAV_PAGES = {
    "/": "Features",
    "/decisions": "Decisions",
    "/timeline": "Timeline",
    "/audit": "Audit",
}
_HTMX_CONFIG = '{"includeIndicatorCSS":false,"allowEval":false,"extensions":"sse"}'
_STANDING_LABELS = {
    "waiting": "waiting for you",
    "working": "in work",
    "stopped": "stopped",
    "ended": "ended",
}


class PageShell(NamedTuple):
    """What is around every page."""

    # With its query
    path: str
    page_secret: str
    # The names of the repositories
    repositories: Sequence[str]
    # The one that the page is about
    repository: str = ""
    feature: str = ""
    waiting_count: int = 0


def build_path(repository: str, *parts: str) -> str:
    """The path of something in a repository."""
    return "/".join(("", "at", *(quote(part, safe="") for part in (repository, *parts))))


def render_page(shell: PageShell, title: str, *content: Child) -> Html:
    """A whole page. Its main part asks for itself again when something has moved that it shows."""
    live = {
        "id": "live",
        "role": "status",
        "hx-sse:connect": f"/events?{urlencode({'at': shell.repository, 'feature': shell.feature})}",
    }
    again = {
        "hx-get": shell.path,
        "hx-trigger": "changed from:#live delay:150ms",
        "hx-select": "#main",
        "hx-swap": "outerMorph",
    }

    head = tag(
        "head",
        tag("meta", {"charset": "utf-8"}),
        tag("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        tag("meta", {"name": "htmx-config", "content": _HTMX_CONFIG}),
        tag("title", f"{title} · Phasegate"),
        tag("link", {"rel": "stylesheet", "href": "/static/board.css"}),
        tag("link", {"rel": "icon", "href": "/static/board.svg"}),
        # Not deferred: htmx would begin before its extension is there.
        *(
            tag("script", {"src": f"/static/{name}"})
            for name in ("htmx.min.js", "hx-sse.min.js", "board.js")
        ),
    )

    header = tag(
        "header",
        tag("a.skip", {"href": "#main"}, "Skip to the content"),
        tag("a.brand", {"href": "/"}, "Phasegate"),
        tag("span.mono quiet", shell.repository or ", ".join(shell.repositories)),
        tag("nav", {"aria-label": "Pages"}, *_render_nav_links(shell)),
        tag("span", live, "live"),
    )

    body = {"hx-headers:inherited": f'{{"X-Phasegate":"{shell.page_secret}"}}'}
    main = tag("main", {"id": "main", "tabindex": -1}, again, *content)
    notice = tag("div", {"id": "notice", "role": "status", "aria-live": "polite"})

    return Html(
        "<!doctype html>"
        + tag("html", {"lang": "en"}, head, tag("body", body, header, notice, main))
    )


def _render_nav_links(shell: PageShell) -> Iterator[Html]:
    here = shell.path.partition("?")[0]
    for path, name in _NAV_PAGES.items():
        if path == "/decisions" and shell.waiting_count:
            count = tag("span.count", shell.waiting_count)
        else:
            count = None

        yield tag(
            "a",
            {"href": path, "aria-current": "page" if path == here else None},
            name,
            " " if count else None,
            count,
        )


def render_notice(text: str, hint: str = "", *, is_error: bool = False) -> Html:
    """What became of an order."""
    if hint:
        hints = tag("span.quiet", f" {hint}")
    else:
        hints = None
    return tag("p", {"class": "notice is-bad" if is_error else "notice"}, text, hints)


def render_panel(title: str, *content: Child, aside: Child = None) -> Html:
    """A part of a page with a heading."""
    heading = tag("div.heading", tag("h2", title), tag("span.quiet", aside))
    return tag("section.panel", heading, *content)


def format_cost(cost_usd: float) -> str:
    """Dollars as people write them; a dash where no agent reported any."""
    if cost_usd >= 0.005:
        return f"${cost_usd:.2f}"
    return "–"


def render_standing(standing: str) -> Html:
    """Whether it is in work, waits, is stopped or has ended."""
    return tag(
        "span",
        {"class": f"pill is-{standing or 'unknown'}"},
        _STANDING_LABELS.get(standing, standing or "not ours"),
    )


def render_table(column_names: Sequence[str], rows: Sequence[Html], empty_text: str) -> Html:
    """A table, or a sentence where there is nothing in it."""
    if not rows:
        return tag("p.quiet", empty_text)
    head = tag("thead", tag("tr", *(tag("th", {"scope": "col"}, name) for name in column_names)))
    whole_table = tag("table", head, tag("tbody", *rows))
    return tag("div.scroll", {"tabindex": 0, "role": "region", "aria-label": "Table"}, whole_table)
