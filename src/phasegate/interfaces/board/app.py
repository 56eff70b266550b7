"""The routes of the board.

Each reads a view or gives an order of the engine, as the command line does.
"""

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
from phasegate.engine.drive.feature import RunOptions, refuse_if_stale
from phasegate.engine.journal.asking import answer_question
from phasegate.engine.journal.feature import read_feature
from phasegate.engine.journal.package import find_package
from phasegate.engine.journal.questions import (
    AgentQuestion,
    read_all_open_questions,
    read_open_questions,
)
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.engine.steps.scope_exceptions import allow_path, preview_path_change
from phasegate.engine.views.audit import read_chain_page, verify_audit_trail
from phasegate.engine.views.board_registry import assign_repository_names, list_repositories
from phasegate.engine.views.feature import (
    FeatureStatusView,
    agent_bars,
    feature_status_view,
    feature_view,
)
from phasegate.engine.views.follow import compute_stamp
from phasegate.engine.views.job import job_view
from phasegate.engine.views.job_log import read_log_page
from phasegate.engine.views.overview import (
    PendingDecision,
    StoreReader,
    list_blocked_package_decisions,
    list_waiting_features,
    open_reader,
)
from phasegate.engine.views.package import package_view, planned_cards
from phasegate.engine.views.show import PartKind, find_subject, read_part
from phasegate.engine.views.spending import FeatureTile, feature_tiles, summarize_spending
from phasegate.errors import ConfigError, PhasegateError, StateConflict
from phasegate.interfaces.board import feature_pages, job_pages, layout, list_pages
from phasegate.interfaces.board.access import BoardCredentials
from phasegate.interfaces.board.updates import UpdateHub
from phasegate.interfaces.html.markup import Html, join_html, tag
from phasegate.interfaces.html.svg import TimelineRow

# Characters of one part
MAX_PART_CHARS = 300_000
# How many made pages are kept, and how long one may be shown while nothing moves
MAX_CACHED_PAGES = 64
PAGE_CACHE_TTL_S = 5.0
MAX_POSITION = 1 << 62


class Board:
    """What all requests share."""

    def __init__(self, start_root: Path | None, credentials: BoardCredentials) -> None:
        self._start_root = start_root
        self.credentials = credentials
        self.hub = UpdateHub(self.list_repositories)
        self._page_cache: OrderedDict[str, tuple[object, bytes]] = OrderedDict()
        self._lock = Lock()

    def list_repositories(self) -> dict[str, Path]:
        """The repositories by name.

        The one that the board was started in, and those that were added.
        """
        here = (self._start_root,) if self._start_root else ()
        return assign_repository_names(
            (*here, *(root for root in list_repositories() if root.is_dir()))
        )

    def find_root(self, request: Request) -> Path:
        """The repository that a path names."""
        name = request.path_params.get("place", "")
        root = self.list_repositories().get(name)
        if root is None:
            raise ConfigError(
                f"there is no repository {name} on this board", "phasegate board add PATH"
            )

        return root

    @contextmanager
    def open_record(self, root: Path) -> Iterator[StoreReader]:
        """The record of a repository; where there is none, there is nothing to show."""
        reader = open_reader(str(root))
        if reader is None:
            raise ConfigError("nothing is recorded in this repository yet", "start a feature")
        with reader:
            yield reader

    def render_page(
        self,
        request: Request,
        title: str,
        render_content: Callable[[], Html],
        version: object = None,
        feature: str = "",
    ) -> Response:
        """A page, made anew only if something has moved.

        Many browsers ask for it at the same moment.
        """
        if request.url.query:
            path = f"{request.url.path}?{request.url.query}"
        else:
            path = request.url.path

        now = (version, time.monotonic() // PAGE_CACHE_TTL_S)
        with self._lock:
            made = self._page_cache.get(path)

        if version is None or made is None or made[0] != now:
            place = request.path_params.get("place", "")
            around = layout.PageShell(
                path,
                self.credentials.page_secret,
                [*self.list_repositories()],
                place,
                feature,
                len(
                    [
                        *self.iter_waiting_features(),
                        *self.iter_open_questions(),
                        *self.iter_stuck_packages(),
                    ]
                ),
            )

            made = (now, layout.render_page(around, title, render_content()).encode())
            with self._lock:
                self._page_cache[path] = made
                while len(self._page_cache) > MAX_CACHED_PAGES:
                    self._page_cache.popitem(last=False)

        return Response(made[1], media_type="text/html")

    def iter_waiting_features(self) -> Iterator[tuple[str, FeatureStatusView, int]]:
        """Every feature that waits for a person: its repository, where it stands, its last event."""
        for place, root in self.list_repositories().items():
            with suppress(PhasegateError), self.open_record(root) as reader:
                for slug in list_waiting_features(reader):
                    # The number of no later one
                    seq = reader.last_seq(slug)
                    feature = read_feature(reader, slug)
                    if feature is not None:
                        yield place, feature_status_view(feature), seq

    def iter_open_questions(self) -> Iterator[tuple[str, AgentQuestion]]:
        """Every open question of an agent, with its repository."""
        for place, root in self.list_repositories().items():
            with suppress(PhasegateError), self.open_record(root) as reader:
                yield from ((place, one) for one in read_all_open_questions(reader))

    def iter_stuck_packages(self) -> Iterator[tuple[str, PendingDecision]]:
        """Every package that is blocked and has no workflow around it."""
        for place, root in self.list_repositories().items():
            with suppress(PhasegateError), self.open_record(root) as reader:
                yield from ((place, one) for one in list_blocked_package_decisions(reader))


PageHandler = Callable[[Board, Request], Response]
OrderHandler = Callable[[Board, Request, dict[str, str]], Html]


def build_app(board: Board) -> Starlette:
    """The application behind the guard."""

    def reads(handler: PageHandler) -> Callable[[Request], Response]:
        def answered(request: Request) -> Response:
            try:
                return handler(board, request)
            except PhasegateError as error:
                return _make_error_response(error)

        return answered

    def changes(order: OrderHandler) -> Callable[[Request], Awaitable[Response]]:
        async def answered(request: Request) -> Response:
            fields = parse_qs(
                (await request.body()).decode("utf-8", "replace"), keep_blank_values=True
            )
            given = {name: values[-1] for name, values in fields.items()}
            try:
                return HTMLResponse(await run_in_threadpool(order, board, request, given))
            except PhasegateError as error:
                return _make_error_response(error)

        return answered

    def events(request: Request) -> Response:
        query = request.query_params
        seen = request.headers.get("last-event-id", "")
        stream = board.hub.stream_changes(query.get("at", ""), query.get("feature", ""), seen)
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
        "/": _show_overview,
        "/decisions": _show_decisions,
        "/timeline": _show_timeline,
        "/audit": _show_audit,
        "/feature/{slug}": _redirect_to_feature,
        feature: _show_feature,
        f"{feature}/{{package}}": _show_package,
        f"{feature}/{{package}}/change": _show_protected_change,
        f"{feature}/{{name}}/part/{{part}}": _show_part,
        "/at/{place}/job/{name}": _show_job,
        "/at/{place}/job/{name}/log": _show_log,
        "/at/{place}/job/{name}/part/{part}": _show_part,
    }

    orders_ = {
        "/start": _start_feature,
        f"{feature}/order/{{order}}": _give_order,
        f"{feature}/{{package}}/allow": _allow_path,
        "/at/{place}/verify": _verify_audit,
        "/at/{place}/answer/{question}": _answer_question,
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


def _make_error_response(error: PhasegateError) -> Response:
    if isinstance(error, StateConflict):
        status = 409
    elif isinstance(error, ConfigError):
        status = 404
    else:
        status = 503

    return HTMLResponse(layout.render_notice(error.message, error.hint, is_error=True), status)


def _read_query_int(request: Request, name: str, default: int) -> int:
    given = request.query_params.get(name, "")
    if given.isascii() and given.isdecimal() and len(given) < 16:
        return int(given)
    return default


# --- pages
# -----------------------------------------------------------------------------------------------------------


def _show_overview(board: Board, request: Request) -> Response:
    tiles: dict[str, tuple[FeatureTile, ...]] = {}
    problems: dict[str, str] = {}

    for place, root in board.list_repositories().items():
        tiles[place] = ()
        try:
            reader = open_reader(str(root))
            if reader is not None:
                with reader:
                    tiles[place] = feature_tiles(reader)
        except PhasegateError as error:
            problems[place] = error.message

    page = max(1, _read_query_int(request, "page", 1))
    return board.render_page(
        request, "Features", lambda: list_pages.render_overview_page(tiles, problems, page)
    )


def _redirect_to_feature(board: Board, request: Request) -> Response:
    """The link that `status` prints: it does not know by which name a board calls the repository."""
    slug = request.path_params["slug"]
    found = []
    for place, root in board.list_repositories().items():
        with suppress(PhasegateError), board.open_record(root) as reader:
            found += [place] if slug in reader.features() else []

    if not found:
        raise ConfigError(
            f"no repository on this board has a feature {slug}", "phasegate board add PATH"
        )

    return RedirectResponse(
        layout.build_path(found[0], "feature", slug) if len(found) == 1 else "/", 303
    )


def _show_feature(board: Board, request: Request) -> Response:
    slug = request.path_params["slug"]
    place = request.path_params["place"]
    with board.open_record(board.find_root(request)) as reader:

        def make() -> Html:
            view = feature_view(reader, slug, with_lines=True)
            if view is None:
                raise ConfigError(f"{slug} has no workflow here", "phasegate status")
            return feature_pages.render_feature_page(
                place,
                view,
                planned_cards(reader, slug),
                read_open_questions(reader, slug),
                time.time(),
            )

        return board.render_page(request, slug, make, compute_stamp(reader, slug), slug)


def _show_decisions(board: Board, request: Request) -> Response:
    def make() -> Html:
        return feature_pages.render_decisions_page(
            [*board.iter_waiting_features()],
            [*board.iter_open_questions()],
            [*board.iter_stuck_packages()],
        )

    return board.render_page(request, "Decisions", make)


def _show_package(board: Board, request: Request) -> Response:
    slug, place, wanted = (request.path_params[name] for name in ("slug", "place", "package"))
    with board.open_record(board.find_root(request)) as reader:

        def make() -> Html:
            return job_pages.render_package_page(place, *package_view(reader, wanted, slug))

        return board.render_page(
            request, f"{wanted} of {slug}", make, compute_stamp(reader, slug), slug
        )


def _show_protected_change(board: Board, request: Request) -> Response:
    """What an agent did to a protected path, to be allowed as it is."""
    slug = request.path_params["slug"]
    wanted = request.path_params["package"]
    project = open_project(board.find_root(request))
    with board.open_record(project.root) as reader:
        package = find_package(reader, wanted, slug).package

    shown = preview_path_change(project, package, request.query_params.get("path", ""))
    if shown.diff:
        said = job_pages.render_text(shown.diff, is_diff=True)
    else:
        said = tag("p", "The path is not protected: any change to it would be allowed.")

    seen = tag("input", {"type": "hidden", "name": "seen", "value": shown.content})
    return HTMLResponse(join_html(said, seen))


def _show_job(board: Board, request: Request) -> Response:
    place = request.path_params["place"]
    name = request.path_params["name"]
    project = open_project(board.find_root(request))
    view = job_view(project.location, name)

    return board.render_page(
        request,
        f"job {name[:8]}",
        lambda: job_pages.render_job_page(place, view),
        feature=view.feature,
    )


def _show_log(board: Board, request: Request) -> Response:
    place = request.path_params["place"]
    name = request.path_params["name"]
    project = open_project(board.find_root(request))
    view = job_view(project.location, name)
    start, before = (_read_query_int(request, key, -1) for key in ("from", "before"))

    if before >= 0:
        page = read_log_page(project, view, before=before)
        return HTMLResponse(
            join_html(job_pages.render_earlier_log_button(place, name, page), tag("pre", page.text))
        )

    page = read_log_page(project, view, None if start < 0 else start)
    if start >= 0 and page.end == start and not page.is_over:
        # Nothing new: who asks goes on asking
        return Response(status_code=204)

    return HTMLResponse(
        (job_pages.render_log_start if start < 0 else job_pages.render_log_part)(place, name, page)
    )


def _show_part(board: Board, request: Request) -> Response:
    names = request.path_params
    if names["part"] not in [*PartKind]:
        raise ConfigError(f"there is no part {names['part']}", "diff, prompt, answer, evidence")

    project = open_project(board.find_root(request))
    kind = PartKind(names["part"])
    with board.open_record(project.root) as reader:
        subject = find_subject(project, reader, names["name"], names.get("slug"))
        text = read_part(project, reader, subject, kind).text

    if len(text) > MAX_PART_CHARS:
        cut = "\n[the rest is cut: phasegate show]"
    else:
        cut = ""

    return HTMLResponse(
        job_pages.render_text(text[:MAX_PART_CHARS] + cut, is_diff=kind is PartKind.DIFF)
    )


def _show_timeline(board: Board, request: Request) -> Response:
    rows = list[TimelineRow]()
    spent = {}
    links = dict[str, str]()

    for place, root in board.list_repositories().items():
        with suppress(PhasegateError), board.open_record(root) as reader:
            spent[place] = summarize_spending(reader)
            for slug in reader.features()[: layout.MAX_TILES]:
                bars = tuple(agent_bars(reader, slug))
                rows += (
                    [TimelineRow(slug, bars, layout.build_path(place, "feature", slug))]
                    if bars
                    else []
                )
                links |= {bar.job: layout.build_path(place, "job", bar.job) for bar in bars}

    rows.sort(key=lambda row: row.bars[0].started)
    return board.render_page(
        request,
        "Timeline",
        lambda: list_pages.render_timeline_page(rows, spent, time.time(), links),
    )


def _show_audit(board: Board, request: Request) -> Response:
    places = board.list_repositories()
    place = request.query_params.get("at") or next(iter(places), "")
    if place not in places:
        raise ConfigError("there is no such repository on this board", "phasegate board add PATH")

    feature = request.query_params.get("feature", "")
    entries = read_chain_page(
        places[place],
        feature or None,
        _read_query_int(request, "before", MAX_POSITION),
        list_pages.MAX_ENTRIES,
    )

    return board.render_page(
        request, "Audit", lambda: list_pages.render_audit_page(place, [*places], entries, feature)
    )


# --- orders
# ----------------------------------------------------------------------------------------------------------


def _start_feature(board: Board, _request: Request, form: dict[str, str]) -> Html:
    root = board.list_repositories().get(form.get("place", ""))
    if root is None:
        raise ConfigError("there is no such repository on this board", "phasegate board add PATH")

    project = open_project(root)
    by = project.make_origin("board")
    with open_project_store(project) as store:
        slug = orders.start_workflow(
            project, store, form.get("type", ""), form.get("description", ""), by=by
        )

    start_detached(project, slug, RunOptions(by=by))
    return layout.render_notice(f"{slug} runs.")


def _give_order(board: Board, request: Request, form: dict[str, str]) -> Html:
    """An order on what the page showed: the number of the feature's last event comes with it."""
    slug = request.path_params["slug"]
    order = request.path_params["order"]
    project = open_project(board.find_root(request))

    if order == "stop":
        report = stop_runs(project.location, slug)
        return layout.render_notice(
            f"{slug} has ended its run." if report.ended else f"{slug} is still ending."
        )

    seq = form.get("seq", "")
    text = form.get("text", "").strip()
    by = project.make_origin("board")
    if not (seq.isascii() and seq.isdecimal() and len(seq) < 16):
        raise ConfigError("the order does not say what it was decided on", "load the page again")

    with open_project_store(project) as store:
        if order != "run":
            orders.execute_order(
                project,
                store,
                slug,
                orders.OrderRequest(order, text, form.get("phase", "")),
                by,
                int(seq),
            )
        else:
            refuse_if_stale(store, slug, int(seq))

    if order in ("run", "complete", "resolve", "retry", "advance", "back"):
        start_detached(project, slug, RunOptions(by=by))

    return layout.render_notice(f"{order} of {slug}: done.")


def _allow_path(board: Board, request: Request, form: dict[str, str]) -> Html:
    slug = request.path_params["slug"]
    wanted = request.path_params["package"]
    reason = form.get("text", "").strip()
    path = form.get("path", "")
    if not reason:
        raise ConfigError("the reason is empty", "say why; it is kept on record")

    project = open_project(board.find_root(request))
    with open_project_store(project) as store:
        package = find_package(store, wanted, slug).package
        allow_path(
            project=project,
            record=store,
            package=package,
            path=path,
            reason=reason,
            by=project.make_origin("board"),
            expected_content=form.get("seen", ""),
        )

    return layout.render_notice(f"{wanted} may change {path}.", "Now resolve what stopped it.")


def _answer_question(board: Board, request: Request, form: dict[str, str]) -> Html:
    project = open_project(board.find_root(request))
    with open_project_store(project) as store:
        by = project.make_origin("board")
        found = answer_question(
            project, store, request.path_params["question"], form.get("text", ""), by
        )

    return layout.render_notice(f"{found.feature}: answered.", found.text[:200])


def _verify_audit(board: Board, request: Request, _form: dict[str, str]) -> Html:
    return list_pages.render_verification(verify_audit_trail(board.find_root(request)))
