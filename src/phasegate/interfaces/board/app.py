"""The routes of the board: each shows a view of the engine or gives it an order.

The command line uses the same views and orders.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Lock
from typing import TypeVar
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from phasegate.core.display.status import needs_only_run
from phasegate.core.text.visible import escape_unprintable
from phasegate.core.workflow.orders import ORDERS
from phasegate.engine.drive import orders
from phasegate.engine.drive.detached import start_detached, stop_runs
from phasegate.engine.drive.run_feature import RunOptions, refuse_if_stale
from phasegate.engine.journal.asking import answer_question
from phasegate.engine.journal.feature import read_feature
from phasegate.engine.journal.package import find_package
from phasegate.engine.journal.questions import (
    AgentQuestion,
    read_all_open_questions,
    read_open_questions,
)
from phasegate.engine.project.project import Project, open_project, open_project_store
from phasegate.engine.steps.scope_exceptions import allow_path, preview_path_change
from phasegate.engine.tools.preflight import refuse_unready_agents
from phasegate.engine.views.audit import describe_entry, read_chain_page, verify_audit_trail
from phasegate.engine.views.board_registry import assign_repository_names, list_repositories
from phasegate.engine.views.capability import list_capabilities, read_capability
from phasegate.engine.views.check_lines import parse_check_lines
from phasegate.engine.views.decision_grounds import decision_grounds, read_feature_diff
from phasegate.engine.views.feature import (
    FeatureStatusView,
    agent_bars,
    feature_status_view,
    feature_view,
)
from phasegate.engine.views.follow import compute_stamp
from phasegate.engine.views.job import job_view, read_evidence
from phasegate.engine.views.job_log import read_log_page, read_log_text
from phasegate.engine.views.overview import (
    PendingDecision,
    StoreReader,
    list_pending_decisions,
    list_waiting_features,
    open_reader,
)
from phasegate.engine.views.package import package_view, planned_cards
from phasegate.engine.views.phase_page import read_phase_page
from phasegate.engine.views.refused import RefusedChange, read_refused_changes
from phasegate.engine.views.show import PartKind, find_subject, read_part
from phasegate.engine.views.spending import (
    FeatureTile,
    feature_tiles,
    list_current_jobs,
    summarize_spending,
)
from phasegate.engine.views.verdicts import read_verdicts
from phasegate.errors import ConfigError, PhasegateError, StateConflict
from phasegate.interfaces.board.access import BoardCredentials
from phasegate.interfaces.board.pages import (
    MAX_EVENT_LINES,
    MAX_TILES,
    Decision,
    PageShell,
    build_board_feature,
    build_decision,
    group_spending,
    group_tiles,
)
from phasegate.interfaces.board.updates import UpdateHub
from phasegate.interfaces.html.charts import TimelineRow, build_gantt
from phasegate.interfaces.html.environment import build_path, render, render_macro

# Characters of one part of a job or package; the rest is cut
MAX_PART_CHARS = 300_000
MAX_CACHED_PAGES = 64
# Maximum age of a cached page, even if its feature has not changed: it shows the time
PAGE_CACHE_TTL_S = 5.0
MAX_ENTRIES = 100
MAX_POSITION = 1 << 62
_MAX_DIGITS = 15

T = TypeVar("T")


class Board:
    """State shared by all requests."""

    def __init__(self, start_root: Path | None, credentials: BoardCredentials) -> None:
        self._start_root = start_root
        self.credentials = credentials
        self.hub = UpdateHub(self.list_repositories)
        self._page_cache: OrderedDict[str, tuple[object, bytes]] = OrderedDict()
        self._lock = Lock()

    def list_repositories(self) -> dict[str, Path]:
        """Return all repositories by name: the one the board was started in, and added ones."""
        here = (self._start_root,) if self._start_root else ()
        return assign_repository_names(
            (*here, *(root for root in list_repositories() if root.is_dir()))
        )

    def find_root(self, name: str) -> Path:
        """Return the root of a repository on the board."""
        root = self.list_repositories().get(name)
        if root is None:
            raise ConfigError(
                f"there is no repository {name} on this board", "phasegate board add PATH"
            )

        return root

    @contextmanager
    def open_record(self, root: Path) -> Iterator[StoreReader]:
        """Open the store of a repository; raise if nothing is recorded there."""
        reader = open_reader(str(root))
        if reader is None:
            raise ConfigError("nothing is recorded in this repository yet", "start a feature")
        with reader:
            yield reader

    def render_page(
        self,
        request: Request,
        template: str,
        title: str,
        build_context: Callable[[], dict[str, object]],
        version: object = None,
        feature: str = "",
    ) -> Response:
        """Render a page, or return the cached one if nothing has changed.

        Many browsers request a page at the same moment. `version` None disables the cache.
        """
        if request.url.query:
            path = f"{request.url.path}?{request.url.query}"
        else:
            path = request.url.path

        current_version = (version, time.monotonic() // PAGE_CACHE_TTL_S)
        with self._lock:
            cached = self._page_cache.get(path)

        if version is not None and cached is not None and cached[0] == current_version:
            return Response(cached[1], media_type="text/html")

        waiting = self.read_all(list_pending_decisions)
        shell = PageShell(
            path=path,
            page_secret=self.credentials.page_secret,
            repositories=[*self.list_repositories()],
            repository=request.path_params.get("repository", ""),
            feature=feature,
            waiting_count=len(waiting),
        )
        page = render(template, title=title, shell=shell, **build_context()).encode()

        with self._lock:
            self._page_cache[path] = (current_version, page)
            while len(self._page_cache) > MAX_CACHED_PAGES:
                self._page_cache.popitem(last=False)

        return Response(page, media_type="text/html")

    def read_all(self, read: Callable[[StoreReader], Iterable[T]]) -> list[tuple[str, T]]:
        """Read from every repository. A repository that cannot be read does not hide the others."""
        found: list[tuple[str, T]] = []
        for repository, root in self.list_repositories().items():
            with suppress(PhasegateError), self.open_record(root) as reader:
                found += [(repository, item) for item in read(reader)]
        return found

    def list_decisions(self) -> list[Decision | None]:
        """Return the decision box of every feature that waits for the user."""
        return [
            build_decision(
                repository,
                status,
                seq,
                with_link=True,
                has_refused="scope allow" in status.remediation
                and needs_only_run(status.remediation),
            )
            for repository, (status, seq) in self.read_all(_read_waiting_features)
        ]

    def list_waiting_features(self) -> set[tuple[str, str]]:
        """Return the repository and name of every feature that waits for the user."""
        return {(name, one.feature) for name, one in self.read_all(list_pending_decisions)}

    def list_questions(self) -> list[tuple[str, AgentQuestion]]:
        """Return every open question of an agent, with its repository."""
        return self.read_all(read_all_open_questions)

    def list_blocked_packages(self) -> list[tuple[str, PendingDecision]]:
        """Return every blocked package that waits for the user, with its repository."""
        decisions = self.read_all(list_pending_decisions)
        return [(name, one) for name, one in decisions if one.package and not one.question]


def _read_waiting_features(reader: StoreReader) -> Iterator[tuple[FeatureStatusView, int]]:
    """Yield the status and the last event of every feature that waits for the user."""
    for slug in list_waiting_features(reader):
        # Read before the feature, so that the number is never later than what is shown
        seq = reader.last_seq(slug)
        feature = read_feature(reader, slug)
        if feature is not None:
            yield feature_status_view(feature), seq


PageHandler = Callable[[Board, Request], Response]
OrderHandler = Callable[[Board, Request, dict[str, str]], str]


def build_app(board: Board) -> Starlette:
    """Build the application that the access middleware protects."""

    def make_page_endpoint(handler: PageHandler) -> Callable[[Request], Response]:
        def endpoint(request: Request) -> Response:
            try:
                return handler(board, request)
            except PhasegateError as error:
                return _make_error_page(board, request, error)

        return endpoint

    def make_order_endpoint(handler: OrderHandler) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            body = (await request.body()).decode("utf-8", "replace")
            fields = parse_qs(body, keep_blank_values=True)
            form = {name: values[-1] for name, values in fields.items()}
            try:
                return HTMLResponse(await run_in_threadpool(handler, board, request, form))
            except PhasegateError as error:
                return _make_error_response(error)

        return endpoint

    def stream_events(request: Request) -> Response:
        query = request.query_params
        last_event_id = request.headers.get("last-event-id", "")
        stream = board.hub.stream_changes(
            query.get("at", ""), query.get("feature", ""), last_event_id
        )
        return StreamingResponse(stream, media_type="text/event-stream")

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        board.hub.start()
        try:
            yield
        finally:
            board.hub.stop()

    feature = "/at/{repository}/feature/{slug}"
    pages = {
        "/": _show_overview,
        "/decisions": _show_decisions,
        "/timeline": _show_timeline,
        "/audit": _show_audit,
        "/specs": _list_specs,
        "/at/{repository}/specs/{capability}": _show_capability,
        "/feature/{slug}": _redirect_to_feature,
        feature: _show_feature,
        f"{feature}/changes/diff": _show_file_diff,
        f"{feature}/phase/{{phase}}": _show_phase,
        f"{feature}/{{package}}": _show_package,
        f"{feature}/{{package}}/change": _show_protected_change,
        f"{feature}/{{name}}/part/{{part}}": _show_part,
        "/at/{repository}/job/{name}": _show_job,
        "/at/{repository}/job/{name}/log": _show_log,
        "/at/{repository}/job/{name}/raw": _download_log,
        "/at/{repository}/job/{name}/part/{part}": _show_part,
    }

    orders_ = {
        "/start": _start_feature,
        f"{feature}/order/{{order}}": _give_order,
        f"{feature}/{{package}}/allow": _allow_path,
        "/at/{repository}/verify": _verify_audit,
        "/at/{repository}/answer/{question}": _answer_question,
    }

    static = StaticFiles(directory=Path(__file__).parent / "static")

    def show_unknown_path(request: Request, _error: Exception) -> Response:
        error = ConfigError(f"the board has no page {request.url.path}", "")
        return _make_error_page(board, request, error)

    return Starlette(
        exception_handlers={404: show_unknown_path},
        routes=[
            Route("/events", stream_events),
            Mount("/static", static),
            *(
                Route(path, make_page_endpoint(handler), methods=["GET"])
                for path, handler in pages.items()
            ),
            *(
                Route(path, make_order_endpoint(handler), methods=["POST"])
                for path, handler in orders_.items()
            ),
        ],
        lifespan=lifespan,
    )


def _make_error_response(error: PhasegateError) -> Response:
    notice = _render_notice(error.message, error.hint, is_error=True)
    return HTMLResponse(notice, _choose_error_status(error))


def _choose_error_status(error: PhasegateError) -> int:
    if isinstance(error, StateConflict):
        return 409
    if isinstance(error, ConfigError):
        return 404
    return 503


def _make_error_page(board: Board, request: Request, error: PhasegateError) -> Response:
    """Render an error inside the frame of the board; a part of an open page gets the text only."""
    if request.headers.get("hx-request"):
        return _make_error_response(error)

    status = _choose_error_status(error)
    title = "Not found" if status == 404 else "This cannot be shown"
    page = board.render_page(
        request, "error.html", title, lambda: {"message": error.message, "hint": error.hint}
    )
    page.status_code = status
    return page


def _render_notice(text: str, hint: str = "", *, is_error: bool = False) -> str:
    """Render the outcome of an order."""
    return render_macro("macros.html", "notice", text, hint, is_error)


def _parse_int(text: str) -> int | None:
    """Parse a number that a browser sent, or return None if it is not a non-negative integer."""
    if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS:
        return int(text)
    return None


def _open_request_project(board: Board, request: Request) -> Project:
    return open_project(board.find_root(request.path_params["repository"]))


# --- pages


def _show_overview(board: Board, request: Request) -> Response:
    """Show the features of all repositories."""
    tiles: dict[str, tuple[FeatureTile, ...]] = {}
    problems: dict[str, str] = {}

    for repository, root in board.list_repositories().items():
        tiles[repository] = ()
        try:
            reader = open_reader(str(root))
            if reader is not None:
                with reader:
                    tiles[repository] = feature_tiles(reader)
        except PhasegateError as error:
            problems[repository] = error.message

    page = _parse_int(request.query_params.get("page", "")) or 1
    query = request.query_params.get("search", "")
    return board.render_page(
        request,
        "overview.html",
        "Features",
        lambda: {
            **group_tiles(
                tiles,
                page,
                board.list_waiting_features(),
                query,
                request.query_params.get("state", ""),
            ),
            "problems": problems,
        },
    )


def _redirect_to_feature(board: Board, request: Request) -> Response:
    """Resolve the link that `status` prints, which does not contain the board's repository name."""
    slug = request.path_params["slug"]
    found = board.read_all(lambda reader: [name for name in reader.features() if name == slug])
    repositories = [repository for repository, _ in found]
    if not repositories:
        raise ConfigError(
            f"no repository on this board has a feature {slug}", "phasegate board add PATH"
        )

    if len(repositories) > 1:
        return RedirectResponse("/", 303)
    return RedirectResponse(build_path(repositories[0], "feature", slug), 303)


def _show_feature(board: Board, request: Request) -> Response:
    """Show a feature with its packages and the decision it waits for."""
    repository = request.path_params["repository"]
    slug = request.path_params["slug"]
    with board.open_record(board.find_root(repository)) as reader:

        def build_context() -> dict[str, object]:
            view = feature_view(reader, slug, with_lines=True)
            if view is None:
                raise ConfigError(f"no workflow was started for {slug}", "phasegate status --all")
            is_working = view.card.worker is not None
            grounds = None
            seen: dict[str, str] = {}
            if not is_working and view.card.is_active:
                project = _open_request_project(board, request)
                grounds = decision_grounds(project, reader, slug)
                seen = _preview_refused(project, reader, slug, grounds.refused)
            packages = planned_cards(reader, slug)

            return {
                "repository": repository,
                "feature": build_board_feature(repository, view, packages, time.time()),
                "packages": packages,
                "running": [job for job in list_current_jobs(reader) if job.feature == slug],
                "decision": build_decision(
                    repository,
                    view.now,
                    view.seq,
                    is_working=is_working,
                    since=view.lines[-1].ts if view.lines else "",
                    has_refused=bool(grounds and grounds.refused),
                    summary=grounds.summary if grounds else (),
                ),
                "grounds": grounds,
                "seen": seen,
                "questions": read_open_questions(reader, slug),
                "lines": (view.lines or ())[-MAX_EVENT_LINES:],
            }

        return board.render_page(
            request, "feature.html", slug, build_context, compute_stamp(reader, slug), slug
        )


def _preview_refused(
    project: Project, reader: StoreReader, slug: str, refused: Iterable[RefusedChange]
) -> dict[str, str]:
    """Return the content of each refused path that the user can allow.

    A permission for a protected path is valid only for the content that the page showed.
    """
    seen = {}
    for change in refused:
        package = find_package(reader, change.package, slug).package
        with suppress(PhasegateError):
            preview = preview_path_change(project, package, change.path)
            seen[f"{change.package}/{change.path}"] = preview.content
    return seen


def _show_file_diff(board: Board, request: Request) -> Response:
    """Show the changes of a feature's merge in one file."""
    project = _open_request_project(board, request)
    with board.open_record(project.root) as reader:
        text = read_feature_diff(
            project, reader, request.path_params["slug"], request.query_params.get("path", "")
        )
    return HTMLResponse(render_macro("fragments.html", "diff", text[:MAX_PART_CHARS]))


def _show_phase(board: Board, request: Request) -> Response:
    """Show a phase with its documents, jobs and gate checks."""
    repository, slug, phase = (
        request.path_params[name] for name in ("repository", "slug", "phase")
    )
    project = _open_request_project(board, request)
    with board.open_record(project.root) as reader:
        page = read_phase_page(project, reader, slug, phase)
        return board.render_page(
            request,
            "phase.html",
            f"{page.phase.name} of {slug}",
            lambda: {"repository": repository, "page": page},
            feature=slug,
        )


def _show_decisions(board: Board, request: Request) -> Response:
    def build_context() -> dict[str, object]:
        return {
            "questions": board.list_questions(),
            "decisions": board.list_decisions(),
            "blocked_packages": board.list_blocked_packages(),
        }

    return board.render_page(request, "decisions.html", "Decisions", build_context)


def _show_package(board: Board, request: Request) -> Response:
    """Show a package with its document, checks and refused changes."""
    repository, slug, package = (
        request.path_params[name] for name in ("repository", "slug", "package")
    )
    with board.open_record(board.find_root(repository)) as reader:

        def build_context() -> dict[str, object]:
            card, document = package_view(reader, package, slug)
            project = _open_request_project(board, request)
            refused = read_refused_changes(project, reader, slug, package)
            jobs = reversed(card.jobs or ())
            evidence = next(
                filter(None, (read_evidence(project.location, job) for job in jobs)), ""
            )
            return {
                "repository": repository,
                "card": card,
                "document": document,
                "checks": parse_check_lines(evidence),
                "refused": refused,
                "seen": _preview_refused(project, reader, slug, refused),
                "verdicts": read_verdicts(reader, slug),
            }

        return board.render_page(
            request,
            "package.html",
            f"{package} of {slug}",
            build_context,
            compute_stamp(reader, slug),
            slug,
        )


def _show_protected_change(board: Board, request: Request) -> Response:
    """Show an agent's change of a protected path, before the user allows it."""
    project = _open_request_project(board, request)
    with board.open_record(project.root) as reader:
        package = find_package(
            reader, request.path_params["package"], request.path_params["slug"]
        ).package

    change = preview_path_change(project, package, request.query_params.get("path", ""))
    return HTMLResponse(render_macro("fragments.html", "protected_change", change))


def _show_job(board: Board, request: Request) -> Response:
    """Show an agent run."""
    repository = request.path_params["repository"]
    name = request.path_params["name"]
    project = _open_request_project(board, request)
    view = job_view(project.location, name)
    with board.open_record(project.root) as reader:
        verdicts = read_verdicts(reader, view.feature)
        refused: tuple[RefusedChange, ...] = ()
        if view.row is not None and view.row.wp and view.row.phase == "implement":
            refused = read_refused_changes(project, reader, view.feature, view.row.wp)

    return board.render_page(
        request,
        "job.html",
        f"job {name[:8]}",
        lambda: {
            "repository": repository,
            "view": view,
            "verdicts": verdicts,
            "refused": refused,
            "checks": parse_check_lines(view.evidence),
        },
        feature=view.feature,
    )


def _download_log(board: Board, request: Request) -> Response:
    """Send the whole output of a job as a file."""
    project = _open_request_project(board, request)
    view = job_view(project.location, request.path_params["name"])
    text = escape_unprintable(read_log_text(project, view), keep="\n\t")
    headers = {"content-disposition": f'attachment; filename="{view.job}.log"'}
    return Response(text, media_type="text/plain; charset=utf-8", headers=headers)


def _show_log(board: Board, request: Request) -> Response:
    """Show a part of a job's log; the page polls for the next one."""
    repository = request.path_params["repository"]
    name = request.path_params["name"]
    project = _open_request_project(board, request)
    view = job_view(project.location, name)
    start = _parse_int(request.query_params.get("from", ""))
    before = _parse_int(request.query_params.get("before", ""))

    if before is not None:
        page = read_log_page(project, view, before=before)
        macro = "log_before"
    else:
        page = read_log_page(project, view, start)
        macro = "log_start" if start is None else "log_part"
        if page.end == start and not page.is_over:
            # Nothing new: htmx keeps the placeholder, which polls again
            return Response(status_code=204)

    base = build_path(repository, "job", name, "log")
    return HTMLResponse(render_macro("fragments.html", macro, base, page))


def _show_part(board: Board, request: Request) -> Response:
    """Show diff, prompt, answer or evidence, truncated if it is long."""
    names = request.path_params
    if names["part"] not in [*PartKind]:
        raise ConfigError(f"there is no part {names['part']}", "diff, prompt, answer, evidence")

    kind = PartKind(names["part"])
    project = _open_request_project(board, request)
    with board.open_record(project.root) as reader:
        subject = find_subject(project, reader, names["name"], names.get("slug"))
        text = read_part(project, reader, subject, kind).text

    if len(text) > MAX_PART_CHARS:
        text = f"{text[:MAX_PART_CHARS]}\n[truncated; see: phasegate show]"

    macro = "diff" if kind is PartKind.DIFF else "text"
    return HTMLResponse(render_macro("fragments.html", macro, text))


def _show_timeline(board: Board, request: Request) -> Response:
    """Show the times and costs of agent runs."""
    rows: list[TimelineRow] = []
    spendings = {}
    job_links: dict[str, str] = {}

    for repository, root in board.list_repositories().items():
        with suppress(PhasegateError), board.open_record(root) as reader:
            spendings[repository] = group_spending(summarize_spending(reader))
            for slug in reader.features()[:MAX_TILES]:
                bars = tuple(agent_bars(reader, slug))
                if bars:
                    rows.append(TimelineRow(slug, bars, build_path(repository, "feature", slug)))
                for bar in bars:
                    job_links[bar.job] = build_path(repository, "job", bar.job)

    rows.sort(key=lambda row: row.bars[0].started)
    return board.render_page(
        request,
        "timeline.html",
        "Timeline",
        lambda: {
            "chart": build_gantt(rows, time.time(), job_links.get, with_dates=True),
            "spendings": spendings,
        },
    )


def _show_audit(board: Board, request: Request) -> Response:
    """Show a page of the journal."""
    repositories = [*board.list_repositories()]
    repository = request.query_params.get("at") or next(iter(repositories), "")
    feature = request.query_params.get("feature", "")
    kind = request.query_params.get("kind", "")
    entries = read_chain_page(
        board.find_root(repository),
        feature or None,
        _parse_int(request.query_params.get("before", "")) or MAX_POSITION,
        MAX_ENTRIES,
        kind or None,
    )
    features: list[str] = []
    with suppress(PhasegateError), board.open_record(board.find_root(repository)) as reader:
        features = sorted(filter(None, reader.features()))

    context: dict[str, object] = {
        "repository": repository,
        "repositories": repositories,
        "feature": feature,
        "features": features,
        "kind": kind,
        "kinds": sorted({kind, *(entry.kind for entry in entries)} - {""}),
        "entries": entries,
        "sentences": {entry.position: describe_entry(entry) for entry in entries},
        "has_older": len(entries) == MAX_ENTRIES,
    }
    return board.render_page(request, "audit.html", "Audit", lambda: context)


def _list_specs(board: Board, request: Request) -> Response:
    """List the capabilities of all repositories."""
    found: dict[str, dict[str, int]] = {}
    for repository, root in board.list_repositories().items():
        with suppress(PhasegateError):
            found[repository] = list_capabilities(open_project(root))
    return board.render_page(
        request, "specs.html", "Specifications", lambda: {"repositories": found}
    )


def _show_capability(board: Board, request: Request) -> Response:
    """Show the requirements of a capability with their tests, drift and history."""
    name = request.path_params["capability"]
    project = _open_request_project(board, request)
    # Before the first feature nothing is recorded
    with open_reader(str(project.root)) or nullcontext() as reader:
        page = read_capability(project, reader, name)
    return board.render_page(request, "capability.html", name, lambda: {"page": page})


# --- orders


def _start_feature(board: Board, _request: Request, form: dict[str, str]) -> str:
    project = open_project(board.find_root(form.get("place", "")))
    by = project.make_origin("board")
    refuse_unready_agents(project, form.get("type", ""))
    with open_project_store(project) as store:
        slug = orders.start_workflow(
            project, store, form.get("type", ""), form.get("description", ""), by=by
        )

    start_detached(project, slug, RunOptions(by=by))
    return _render_notice(f"{slug}: run started.")


def _give_order(board: Board, request: Request, form: dict[str, str]) -> str:
    """Execute an order from a page.

    The form has the number of the last event that the page showed: an order from an outdated page
    is refused. Only a stop is always accepted.
    """
    slug = request.path_params["slug"]
    order = request.path_params["order"]
    project = _open_request_project(board, request)

    if order == "stop":
        report = stop_runs(project.location, slug)
        return _render_notice(
            f"{slug}: run stopped." if report.ended else f"{slug}: the run is still stopping."
        )

    seq = _parse_int(form.get("seq", ""))
    if seq is None:
        raise ConfigError("the form is incomplete or outdated", "reload the page and try again")

    by = project.make_origin("board")
    with open_project_store(project) as store:
        if order == "run":
            refuse_if_stale(store, slug, seq)
        else:
            wanted = orders.OrderRequest(order, form.get("text", "").strip(), form.get("phase", ""))
            orders.execute_order(project, store, slug, wanted, by, seq)

    if order == "run" or ORDERS[order].resumes:
        start_detached(project, slug, RunOptions(by=by))

    return _render_notice(f"{order} of {slug}: done.")


def _allow_path(board: Board, request: Request, form: dict[str, str]) -> str:
    """Record a scope exception from the form."""
    wanted = request.path_params["package"]
    reason = form.get("text", "").strip()
    path = form.get("path", "")
    if not reason:
        raise ConfigError("the reason is empty", "give a reason; it is recorded")

    project = _open_request_project(board, request)
    with open_project_store(project) as store:
        package = find_package(store, wanted, request.path_params["slug"]).package
        allow_path(
            project=project,
            record=store,
            package=package,
            path=path,
            reason=reason,
            by=project.make_origin("board"),
            expected_content=form.get("seen", ""),
        )
        slug = package.feature_slug
        has_workflow = any(row.feature == slug for row in store.workflows())

    if form.get("continue") and has_workflow:
        # The run checks the blocker again
        start_detached(project, slug, RunOptions(by=project.make_origin("board")))
        return _render_notice(f"{wanted} may change {path}. The run continues.")
    return _render_notice(f"{wanted} may change {path}.", "Continue the run.")


def _answer_question(board: Board, request: Request, form: dict[str, str]) -> str:
    project = _open_request_project(board, request)
    with open_project_store(project) as store:
        by = project.make_origin("board")
        question = answer_question(
            project, store, request.path_params["question"], form.get("text", ""), by
        )

    return _render_notice(f"{question.feature}: answered.", question.text[:200])


def _verify_audit(board: Board, request: Request, _form: dict[str, str]) -> str:
    report = verify_audit_trail(board.find_root(request.path_params["repository"]))
    return render_macro("macros.html", "verification", report)
