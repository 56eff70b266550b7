"""The routes of the board: each reads a view or gives an order of the engine, as the command line does."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from phasegate.engine.drive import orders
from phasegate.engine.drive.detached import start_detached, stop_runs
from phasegate.engine.drive.feature import Wishes, refuse_if_moved
from phasegate.engine.journal.asking import answer
from phasegate.engine.journal.feature import read_feature
from phasegate.engine.journal.package import find_package
from phasegate.engine.journal.questions import AgentQuestion, open_questions, unanswered
from phasegate.engine.project.project import open_project, opened_store
from phasegate.engine.steps.scope_exceptions import allow_path, shown_change
from phasegate.engine.views.audit import chain_page, verified
from phasegate.engine.views.board_registry import kept_repositories, named_repositories
from phasegate.engine.views.feature import StandingView, agent_bars, feature_view, standing_view
from phasegate.engine.views.follow import stamp_of
from phasegate.engine.views.job import job_view
from phasegate.engine.views.job_log import log_page
from phasegate.engine.views.overview import Decision, Reader, open_reader, stuck_packages, waiting_features
from phasegate.engine.views.package import package_view, planned_cards
from phasegate.engine.views.show import PartKind, find_subject, part_of
from phasegate.engine.views.spending import FeatureTile, feature_tiles, spending
from phasegate.errors import ConfigError, PhasegateError, StateConflict
from phasegate.interfaces.board import feature_pages, job_pages, layout, list_pages
from phasegate.interfaces.board.access import BoardEntry
from phasegate.interfaces.board.updates import Hub
from phasegate.interfaces.html.markup import Html, join, tag
from phasegate.interfaces.html.svg import Row

LARGEST_TEXT = 300_000  # characters of one part
MOST_PAGES, OLDEST_S = 64, 5.0  # how many made pages are kept, and how long one may be shown while nothing moves
LAST = 1 << 62


class Board:
    """What all requests share."""

    def __init__(self, here: Path | None, entry: BoardEntry) -> None:
        self._here, self.entry = here, entry
        self.hub = Hub(self.places)
        self._made: OrderedDict[str, tuple[object, bytes]] = OrderedDict()
        self._lock = Lock()

    def places(self) -> dict[str, Path]:
        """The repositories by name: the one that the board was started in, and those that were added."""
        here = (self._here,) if self._here else ()
        return named_repositories((*here, *(root for root in kept_repositories() if root.is_dir())))

    def root(self, request: Request) -> Path:
        """The repository that a path names."""
        name = request.path_params.get("place", "")
        root = self.places().get(name)
        if root is None:
            raise ConfigError(f"there is no repository {name} on this board", "phasegate board add PATH")
        return root

    @contextmanager
    def reader(self, root: Path) -> Iterator[Reader]:
        """The record of a repository; where there is none, there is nothing to show."""
        reader = open_reader(str(root))
        if reader is None:
            raise ConfigError("nothing is recorded in this repository yet", "start a feature")
        with reader:
            yield reader

    def page(
        self, request: Request, title: str, make: Callable[[], Html], stamp: object = None, feature: str = ""
    ) -> Response:
        """A page, made anew only if something has moved: many browsers ask for it at the same moment."""
        path = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
        now = (stamp, time.monotonic() // OLDEST_S)
        with self._lock:
            made = self._made.get(path)
        if stamp is None or made is None or made[0] != now:
            place = request.path_params.get("place", "")
            around = layout.Shell(
                path,
                self.entry.page_secret,
                [*self.places()],
                place,
                feature,
                len([*self.waiting(), *self.questions(), *self.stuck()]),
            )
            made = (now, layout.whole(around, title, make()).encode())
            with self._lock:
                self._made[path] = made
                while len(self._made) > MOST_PAGES:
                    self._made.popitem(last=False)
        return Response(made[1], media_type="text/html")

    def waiting(self) -> Iterator[tuple[str, StandingView, int]]:
        """Every feature that waits for a person: its repository, where it stands, its last event."""
        for place, root in self.places().items():
            with suppress(PhasegateError), self.reader(root) as reader:
                for slug in waiting_features(reader):
                    seq, feature = reader.seq(slug), read_feature(reader, slug)  # the number of no later one
                    if feature is not None:
                        yield place, standing_view(feature), seq

    def questions(self) -> Iterator[tuple[str, AgentQuestion]]:
        """Every open question of an agent, with its repository."""
        for place, root in self.places().items():
            with suppress(PhasegateError), self.reader(root) as reader:
                yield from ((place, one) for one in unanswered(reader))

    def stuck(self) -> Iterator[tuple[str, Decision]]:
        """Every package that is blocked and has no workflow around it."""
        for place, root in self.places().items():
            with suppress(PhasegateError), self.reader(root) as reader:
                yield from ((place, one) for one in stuck_packages(reader))


Handler = Callable[[Board, Request], Response]
Order = Callable[[Board, Request, dict[str, str]], Html]


def board_app(board: Board) -> Starlette:
    """The application behind the guard."""

    def reads(handler: Handler) -> Callable[[Request], Response]:
        def answered(request: Request) -> Response:
            try:
                return handler(board, request)
            except PhasegateError as error:
                return _refused(error)

        return answered

    def changes(order: Order) -> Callable[[Request], Awaitable[Response]]:
        async def answered(request: Request) -> Response:
            fields = parse_qs((await request.body()).decode("utf-8", "replace"), keep_blank_values=True)
            given = {name: values[-1] for name, values in fields.items()}
            try:
                return HTMLResponse(await run_in_threadpool(order, board, request, given))
            except PhasegateError as error:
                return _refused(error)

        return answered

    def events(request: Request) -> Response:
        query = request.query_params
        seen = request.headers.get("last-event-id", "")
        stream = board.hub.changes(query.get("at", ""), query.get("feature", ""), seen)
        return StreamingResponse(stream, media_type="text/event-stream")

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        board.hub.start()
        try:
            yield
        finally:
            board.hub.stop()

    feature = "/at/{place}/feature/{slug}"
    pages_ = {
        "/": _overview,
        "/decisions": _decisions,
        "/timeline": _timeline,
        "/audit": _audit,
        "/feature/{slug}": _find_feature,
        feature: _feature,
        f"{feature}/{{package}}": _package,
        f"{feature}/{{package}}/change": _change,
        f"{feature}/{{name}}/part/{{part}}": _part,
        "/at/{place}/job/{name}": _job,
        "/at/{place}/job/{name}/log": _log,
        "/at/{place}/job/{name}/part/{part}": _part,
    }
    orders_ = {
        "/start": _start,
        f"{feature}/order/{{order}}": _order,
        f"{feature}/{{package}}/allow": _allow,
        "/at/{place}/verify": _verify,
        "/at/{place}/answer/{question}": _answer,
    }
    static = StaticFiles(directory=Path(__file__).parent / "static")
    return Starlette(
        routes=[
            Route("/events", events),
            Mount("/static", static),
            *(Route(path, reads(handler), methods=["GET"]) for path, handler in pages_.items()),
            *(Route(path, changes(order), methods=["POST"]) for path, order in orders_.items()),
        ],
        lifespan=lifespan,
    )


def _refused(error: PhasegateError) -> Response:
    status = 409 if isinstance(error, StateConflict) else 404 if isinstance(error, ConfigError) else 503
    return HTMLResponse(layout.notice(error.message, error.hint, is_bad=True), status)


def _number(request: Request, name: str, default: int) -> int:
    given = request.query_params.get(name, "")
    return int(given) if given.isascii() and given.isdecimal() and len(given) < 16 else default


# --- pages -----------------------------------------------------------------------------------------------------------


def _overview(board: Board, request: Request) -> Response:
    tiles: dict[str, tuple[FeatureTile, ...]] = {}
    problems: dict[str, str] = {}
    for place, root in board.places().items():
        tiles[place] = ()
        try:
            reader = open_reader(str(root))
            if reader is not None:
                with reader:
                    tiles[place] = feature_tiles(reader)
        except PhasegateError as error:
            problems[place] = error.message
    page = max(1, _number(request, "page", 1))
    return board.page(request, "Features", lambda: list_pages.overview_page(tiles, problems, page))


def _find_feature(board: Board, request: Request) -> Response:
    """The link that `status` prints: it does not know by which name a board calls the repository."""
    slug, found = request.path_params["slug"], []
    for place, root in board.places().items():
        with suppress(PhasegateError), board.reader(root) as reader:
            found += [place] if slug in reader.features() else []
    if not found:
        raise ConfigError(f"no repository on this board has a feature {slug}", "phasegate board add PATH")
    return RedirectResponse(layout.address(found[0], "feature", slug) if len(found) == 1 else "/", 303)


def _feature(board: Board, request: Request) -> Response:
    slug, place = request.path_params["slug"], request.path_params["place"]
    with board.reader(board.root(request)) as reader:

        def make() -> Html:
            view = feature_view(reader, slug, told=True)
            if view is None:
                raise ConfigError(f"{slug} has no workflow here", "phasegate status")
            return feature_pages.feature_page(
                place, view, planned_cards(reader, slug), open_questions(reader, slug), time.time()
            )

        return board.page(request, slug, make, stamp_of(reader, slug), slug)


def _decisions(board: Board, request: Request) -> Response:
    def make() -> Html:
        return feature_pages.decisions_page([*board.waiting()], [*board.questions()], [*board.stuck()])

    return board.page(request, "Decisions", make)


def _package(board: Board, request: Request) -> Response:
    slug, place, wanted = (request.path_params[name] for name in ("slug", "place", "package"))
    with board.reader(board.root(request)) as reader:

        def make() -> Html:
            return job_pages.package_page(place, *package_view(reader, wanted, slug))

        return board.page(request, f"{wanted} of {slug}", make, stamp_of(reader, slug), slug)


def _change(board: Board, request: Request) -> Response:
    """What an agent did to a protected path, to be allowed as it is."""
    slug, wanted = request.path_params["slug"], request.path_params["package"]
    project = open_project(board.root(request))
    with board.reader(project.root) as reader:
        package = find_package(reader, wanted, slug).package
    shown = shown_change(project, package, request.query_params.get("path", ""))
    said = (
        job_pages.text_part(shown.diff, is_diff=True)
        if shown.diff
        else tag("p", "The path is not protected: any change to it would be allowed.")
    )
    seen = tag("input", {"type": "hidden", "name": "seen", "value": shown.content})
    return HTMLResponse(join(said, seen))


def _job(board: Board, request: Request) -> Response:
    place, name = request.path_params["place"], request.path_params["name"]
    project = open_project(board.root(request))
    view = job_view(project.location, name)
    return board.page(request, f"job {name[:8]}", lambda: job_pages.job_page(place, view), feature=view.feature)


def _log(board: Board, request: Request) -> Response:
    place, name = request.path_params["place"], request.path_params["name"]
    project = open_project(board.root(request))
    view = job_view(project.location, name)
    start, before = (_number(request, key, -1) for key in ("from", "before"))
    if before >= 0:
        page = log_page(project, view, before=before)
        return HTMLResponse(join(job_pages.earlier_log(place, name, page), tag("pre", page.text)))
    page = log_page(project, view, None if start < 0 else start)
    if start >= 0 and page.end == start and not page.is_over:
        return Response(status_code=204)  # nothing new: who asks goes on asking
    return HTMLResponse((job_pages.log_start if start < 0 else job_pages.log_part)(place, name, page))


def _part(board: Board, request: Request) -> Response:
    names = request.path_params
    if names["part"] not in [*PartKind]:
        raise ConfigError(f"there is no part {names['part']}", "diff, prompt, answer, evidence")
    project, kind = open_project(board.root(request)), PartKind(names["part"])
    with board.reader(project.root) as reader:
        subject = find_subject(project, reader, names["name"], names.get("slug"))
        text = part_of(project, reader, subject, kind).text
    cut = "\n[the rest is cut: phasegate show]" if len(text) > LARGEST_TEXT else ""
    return HTMLResponse(job_pages.text_part(text[:LARGEST_TEXT] + cut, is_diff=kind is PartKind.DIFF))


def _timeline(board: Board, request: Request) -> Response:
    rows, spent, links = list[Row](), {}, dict[str, str]()
    for place, root in board.places().items():
        with suppress(PhasegateError), board.reader(root) as reader:
            spent[place] = spending(reader)
            for slug in reader.features()[: layout.MOST_TILES]:
                bars = tuple(agent_bars(reader, slug))
                rows += [Row(slug, bars, layout.address(place, "feature", slug))] if bars else []
                links |= {bar.job: layout.address(place, "job", bar.job) for bar in bars}
    rows.sort(key=lambda row: row.bars[0].started)
    return board.page(request, "Timeline", lambda: list_pages.timeline_page(rows, spent, time.time(), links))


def _audit(board: Board, request: Request) -> Response:
    places = board.places()
    place = request.query_params.get("at") or next(iter(places), "")
    if place not in places:
        raise ConfigError("there is no such repository on this board", "phasegate board add PATH")
    feature = request.query_params.get("feature", "")
    entries = chain_page(places[place], feature or None, _number(request, "before", LAST), list_pages.MOST_ENTRIES)
    return board.page(request, "Audit", lambda: list_pages.audit_page(place, [*places], entries, feature))


# --- orders ----------------------------------------------------------------------------------------------------------


def _start(board: Board, _request: Request, given: dict[str, str]) -> Html:
    root = board.places().get(given.get("place", ""))
    if root is None:
        raise ConfigError("there is no such repository on this board", "phasegate board add PATH")
    project = open_project(root)
    by = project.ordered_at("board")
    with opened_store(project) as store:
        slug = orders.start(project, store, given.get("type", ""), given.get("description", ""), by=by)
    start_detached(project, slug, Wishes(by=by))
    return layout.notice(f"{slug} runs.")


def _order(board: Board, request: Request, given: dict[str, str]) -> Html:
    """An order on what the page showed: the number of the feature's last event comes with it."""
    slug, order = request.path_params["slug"], request.path_params["order"]
    project = open_project(board.root(request))
    if order == "stop":
        report = stop_runs(project.location, slug)
        return layout.notice(f"{slug} has ended its run." if report.ended else f"{slug} is still ending.")
    seq, text, by = given.get("seq", ""), given.get("text", "").strip(), project.ordered_at("board")
    if not (seq.isascii() and seq.isdecimal() and len(seq) < 16):
        raise ConfigError("the order does not say what it was decided on", "load the page again")
    with opened_store(project) as store:
        if order != "run":
            orders.give(project, store, slug, orders.GivenOrder(order, text, given.get("phase", "")), by, int(seq))
        else:
            refuse_if_moved(store, slug, int(seq))
    if order in ("run", "complete", "resolve", "retry", "advance", "back"):
        start_detached(project, slug, Wishes(by=by))
    return layout.notice(f"{order} of {slug}: done.")


def _allow(board: Board, request: Request, given: dict[str, str]) -> Html:
    slug, wanted, reason = request.path_params["slug"], request.path_params["package"], given.get("text", "").strip()
    path = given.get("path", "")
    if not reason:
        raise ConfigError("the reason is empty", "say why; it is kept on record")
    project = open_project(board.root(request))
    with opened_store(project) as store:
        package = find_package(store, wanted, slug).package
        allow_path(project, store, package, path, reason, project.ordered_at("board"), given.get("seen", ""))
    return layout.notice(f"{wanted} may change {path}.", "Now resolve what stopped it.")


def _answer(board: Board, request: Request, given: dict[str, str]) -> Html:
    project = open_project(board.root(request))
    with opened_store(project) as store:
        by = project.ordered_at("board")
        found = answer(project, store, request.path_params["question"], given.get("text", ""), by)
    return layout.notice(f"{found.feature}: answered.", found.text[:200])


def _verify(board: Board, request: Request, _given: dict[str, str]) -> Html:
    return list_pages.verified_part(verified(board.root(request)))
