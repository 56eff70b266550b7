"""`phasegate board`: its pages and orders over real HTTP on loopback, without a browser (those are in tests/board)."""

from __future__ import annotations

import json
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest

from phasegate.core.machine.feature_events import Cancelled, Escalated
from phasegate.engine.drive import orders
from phasegate.engine.journal.entries import FEATURE_STEP, read_feature_step
from phasegate.engine.project.project import open_project_store
from phasegate.storage.lock import feature_lock
from support.board_client import BoardClient
from support.dispatch_project import make_project
from support.feature_run import (
    DESCRIPTION,
    SCENARIO,
    SLUG,
    TYPE,
    FeatureRun,
    Turn,
    make_feature_run,
)
from support.git_project import make_repository
from support.markup_payloads import PAYLOADS, Markup
from support.sandboxed import eventually

PAGE = f"/at/repo/feature/{SLUG}"
SLOW: Turn = {"phase": "plan", "steps": [{"print": "thinking"}, {"sleep_s": 600}]}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FeatureRun:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return make_feature_run(tmp_path)


def stage(run: FeatureRun) -> str:
    with run.reader() as reader:
        return next(row.stage for row in reader.workflows() if row.feature == SLUG)


@pytest.mark.demand("X2.b")
def test_every_page_shows_what_the_record_holds_and_a_merge_is_ordered_from_it(
    run: FeatureRun,
) -> None:
    run.play(*SCENARIO)
    assert run.command("run", TYPE, DESCRIPTION).code == 0
    job = next(one for one in run.jobs() if one.wp == "WP01" and one.phase == "implement")
    with BoardClient(run.root) as board:
        overview = Markup(board.get("/").text).text
        assert (
            "Waiting for you 1" in overview,
            DESCRIPTION in overview,
            "waiting for you" in overview,
        ) == (True,) * 3
        feature = board.get(PAGE).text
        told = Markup(feature).text
        assert (
            "Merge into main" in told,
            "GATE-08 PASSED" in told,
            "WP01" in told,
            "sent back" in told,
        ) == (True,) * 4
        assert feature.count('class="diamond') >= 4  # the gates on the time axis
        assert "Merge into main" in board.get("/decisions").text
        package = board.get(f"{PAGE}/WP01").text
        # Nothing was refused: there is nothing to allow. The reviewer's verdict is in the list.
        assert (f"/at/repo/job/{job.id}" in package, "Allow this path" in package) == (True, False)
        assert (">PASS</td>" in package, "✓ test" in package) == (True, True)
        assert "before: 1 passed, 0 failed, 0 skipped" in told
        diff = board.get(f"{PAGE}/changes/diff?path=bye.py").text
        assert ('data-new="1"' in diff, "+def bye(name)" in Markup(diff).text) == (True, True)
        phase = Markup(board.get(f"{PAGE}/phase/01-requirements").text).text
        assert ("NEEDS_REVISION" in phase, "spec.md" in phase, "passed" in phase) == (True,) * 3
        assert "+def bye(name)" in Markup(board.get(f"{PAGE}/WP01/part/diff").text).text
        page = Markup(board.get(f"/at/repo/job/{job.id}").text).text
        assert ("Claims" in page, "python3 -S -m unittest -q check" in page) == (True, True)
        assert "&lt;prompt&gt;" in board.get(f"/at/repo/job/{job.id}/part/prompt").text
        assert board.get(f"/at/repo/job/{job.id}/log").status == 200
        assert "By agent" in board.get("/timeline").text
        audit = board.get("/audit?at=repo").text
        assert ("workflow.happened" in audit, "older entries" in audit) == (True, True)
        assert "gate checked" in audit  # a sentence; the entry itself is folded
        filtered = board.get("/audit?at=repo&kind=notice.given").text
        assert "workflow.happened" not in filtered
        assert "Verified: " in board.post("/at/repo/verify").text
        linked = run.command("status").stdout
        assert f"board: http://{board.host}/feature/{SLUG}" in linked
        assert board.get(f"/feature/{SLUG}").headers["location"] == PAGE
        for path in (
            f"{PAGE}x",
            "/at/other/feature/x",
            "/at/repo/job/nothing",
            f"{PAGE}/WP09",
            "/audit?at=..",
        ):
            missing = board.get(path)
            assert (missing.status, 'aria-label="Pages"' in missing.text) == (404, True), path
        assert board.post(f"{PAGE}/order/complete", seq=board.seq(PAGE)).status == 200
        with run.reader() as reader:
            by = [
                read_feature_step(one.payload)
                for one in reader.events(SLUG)
                if one.kind == FEATURE_STEP
            ]
        assert any(getattr(getattr(event, "by", None), "door", "") == "board" for event in by)
        run.run("stop")  # it may have ended already
        run.command("run", "--feature", SLUG)
    assert stage(run) == "completed"
    assert (run.root / "bye.py").exists()
    assert "on the board" not in run.command("status").stdout


@pytest.mark.demand("X2.b")
def test_an_order_counts_for_what_the_page_showed_and_once(run: FeatureRun) -> None:
    run.command("start", TYPE, DESCRIPTION)
    with BoardClient(run.root) as board:
        shown = board.seq(PAGE)
        assert board.post(f"{PAGE}/order/escalate", seq=shown).status == 409  # it needs a reason
        assert board.post(f"{PAGE}/order/escalate", seq="x", text="look").status == 404
        assert board.post(f"{PAGE}/order/delete", seq=shown, text="look").status == 404
        assert (
            board.post(f"{PAGE}/order/escalate", seq=shown + 1, text="look").status == 409
        )  # that was never shown
        with open_project_store(run.project) as store:  # changes nothing of what they decide on
            orders.add_notice(run.project, store, SLUG, "somebody else was here")
        assert board.post(f"{PAGE}/order/escalate", seq=shown, text="look").status == 200
        again = board.post(f"{PAGE}/order/escalate", seq=shown, text="look")
        assert (again.status, "has changed" in again.text) == (409, True)
        late = board.post(
            f"{PAGE}/order/cancel", seq=shown, text="late"
        )  # allowed now, but not what was seen
        assert (late.status, stage(run)) == (409, "blocked")
        assert (
            board.post(f"{PAGE}/order/cancel", seq=board.seq(PAGE), text="it is late").status == 200
        )  # the control
    assert stage(run) == "cancelled"
    with run.reader() as reader:
        events = [
            read_feature_step(one.payload)
            for one in reader.events(SLUG)
            if one.kind == FEATURE_STEP
        ]
    given = [event for event in events if isinstance(event, Escalated | Cancelled)]
    assert [(type(event).__name__, event.by.door) for event in given] == [
        ("Escalated", "board"),
        ("Cancelled", "board"),
    ]


@pytest.mark.demand("X2.b")
def test_who_gives_an_order_is_not_offered_to_be_stopped(run: FeatureRun) -> None:
    run.command("start", TYPE, DESCRIPTION)
    with BoardClient(run.root) as board:
        for command, is_work in (("resolve", False), (f"run {SLUG}", True)):
            with feature_lock(run.project.location.locks_folder, SLUG, command, "now"):
                page = board.get(PAGE).text
            assert ("Stop the run" in page, "Not running" in page) == (
                is_work,
                not is_work,
            )


@pytest.mark.demand("X2.b")
def test_a_run_is_started_followed_and_stopped_from_the_board(run: FeatureRun) -> None:
    run.play(SLOW)
    with BoardClient(run.root) as board:
        assert board.post("/start", place="repo", type=TYPE, description="").status == 404
        assert board.post("/start", place="other", type=TYPE, description=DESCRIPTION).status == 404
        started = board.post("/start", place="repo", type=TYPE, description=DESCRIPTION)
        assert (started.status, SLUG in started.text) == (200, True)
        page = board.get(PAGE).text
        assert ("Agents are working" in page, "Stop the run" in page) == (True, True)
        assert "In progress" in board.get("/").text
        twice = board.post(f"{PAGE}/order/run", seq=board.seq(PAGE))
        assert (twice.status, "already running" in twice.text) == (409, True)
        assert board.post(f"{PAGE}/order/stop").status == 200
        assert "Not running" in board.get(PAGE).text
        assert board.post(f"{PAGE}/order/stop").status == 409


@pytest.mark.demand("X2.b")
def test_fifty_texts_that_would_be_markup_are_text_on_every_page(run: FeatureRun) -> None:
    project = run.project
    with open_project_store(project) as store:
        slugs = [
            orders.start_workflow(project, store, TYPE, f"{number} {text}")
            for number, text in enumerate(PAYLOADS)
        ]
        orders.execute_order(
            project, store, slugs[0], orders.OrderRequest("escalate", " ".join(PAYLOADS))
        )
    assert len({*PAYLOADS}) == 50
    naive = [
        Markup(f'<p title="{text}">{text}</p>') for text in PAYLOADS
    ]  # the control: as markup they act
    assert all(page.trouble for page in naive)
    with BoardClient(run.root) as board:
        pages = {
            path: Markup(board.get(path).text)
            for path in ("/", "/decisions", "/timeline", "/audit?at=repo")
        }
        for slug, text in zip(slugs, PAYLOADS, strict=True):
            pages[slug] = Markup(board.get(f"/at/repo/feature/{slug}").text)
            assert text in pages[slug].text
            assert text in pages["/"].text
        assert all(text in pages["/decisions"].text for text in PAYLOADS)
        assert {path: page.trouble for path, page in pages.items() if page.trouble} == {}
        named = board.get("/at/%3Cscript%3E/feature/x").text  # and in what is refused
        assert ("<script>" in named, "&lt;script&gt;" in named) == (False, True)


@pytest.mark.demand("X2.b")
def test_several_repositories_are_on_one_board_and_a_broken_one_hides_no_other(
    run: FeatureRun, tmp_path: Path
) -> None:
    other = FeatureRun(tmp_path / "more")
    make_repository(other.root, {"a": ""})  # a second folder of the name
    (other.root / "phasegate.toml").write_text((run.root / "phasegate.toml").read_text())
    (tmp_path / "more/scenario.json").write_text("[]")
    run.command("start", TYPE, DESCRIPTION)
    other.command("start", TYPE, "Say hello")
    assert run.command("board", "add", str(tmp_path)).code == 2  # no repository
    assert run.command("board", "add", str(other.root)).code == 0
    assert json.loads(run.command("board", "list", "--json").stdout) == {
        "repositories": [str(other.root)]
    }
    with BoardClient(run.root) as board:
        page = Markup(board.get("/").text).text
        assert (DESCRIPTION in page, "Say hello" in page, "repo-2 · " in page) == (True, True, True)
        assert "Say hello" in board.get("/at/repo-2/feature/001-say-hello").text
        (other.root / ".phasegate/store.db").write_bytes(b"no database")
        page = Markup(board.get("/").text).text
        assert (DESCRIPTION in page, "repo-2: " in page, "damaged" in page) == (True, True, True)
        assert run.command("board", "remove", str(other.root)).code == 0
        assert "repo-2" not in board.get("/").text
    assert run.command("board", "remove", str(other.root)).code == 2


@pytest.mark.demand("X2.b")
def test_the_stream_tells_that_a_feature_moved_and_a_log_of_any_size_opens_at_its_end(
    run: FeatureRun,
) -> None:
    run.play(SLOW)
    with BoardClient(run.root) as board:
        board.post("/start", place="repo", type=TYPE, description=DESCRIPTION)
        assert eventually(run.jobs)
        (job,) = run.jobs()
        log = run.project.jobs_folder / job.id / "stdout.log"
        path = f"/at/repo/job/{job.id}/log"
        streamed = HTTPConnection("127.0.0.1", board.port, timeout=30)
        streamed.request(
            "GET",
            f"/events?at=repo&feature={SLUG}",
            headers={"Host": board.host, "Cookie": board.cookie},
        )
        stream = streamed.getresponse()
        assert stream.readline() == b"retry: 500\n"
        while "thinking" not in board.get(path).text:
            assert not run.jobs()[0].ended
        size = log.stat().st_size
        assert board.get(f"{path}?from={size}").status == 204
        with log.open("a", encoding="utf-8") as out:
            out.write("one more\nhalf")
        more = board.get(f"{path}?from={size}").text
        assert ("one more" in more, "half" in more, f"from={size + 9}" in more) == (
            True,
            False,
            True,
        )
        board.post(f"{PAGE}/order/stop")
        assert [stream.readline() for _ in range(3)][2] == b"event: changed\n"
        streamed.close()
        with log.open("a", encoding="utf-8") as out:
            out.writelines(f"line {number} {'x' * 990}\n" for number in range(20_000))
        last = board.get(path).text
        assert ("line 19999" in last, "line 19000" in last, len(last) < 200_000) == (
            True,
            False,
            True,
        )
        assert "Show earlier output" in last
        before = board.get(f"{path}?before=64000").text
        assert ("line 0 " in before, "Show earlier output" in before, "every 1s" in last) == (
            True,
            False,
            False,
        )


@pytest.mark.demand("X2.e")
def test_a_report_is_one_page_with_all_of_a_feature_and_runs_nothing(run: FeatureRun) -> None:
    run.play(*SCENARIO)
    assert run.command("run", TYPE, f"{DESCRIPTION} {PAYLOADS[0]}", "--merge").code == 0
    slug = "001-say-bye-script-alert-1"
    missing = run.command("report", "nothing")
    assert (missing.code, "nothing.html" in [path.name for path in run.root.iterdir()]) == (
        2,
        False,
    )
    assert run.command("report", slug, "-o", "no/such/folder.html").code == 3
    out = run.folder / "report.html"
    assert run.command("report", slug, "-o", str(out)).code == 0
    page = Markup(out.read_text())
    for part in (
        "FR-BYE-001",
        "WP01: Do it",
        "merged into main at",
        "GATE-08",
        "Started",
        "cli",
        "Verified: ",
        PAYLOADS[0],
    ):
        assert part in page.text, part
    allowed = ("style", "meta http-equiv")
    assert [one for one in page.trouble if not one.startswith(allowed)] == []
    assert "<script" not in out.read_text()
    assert "http://" not in out.read_text()
    data = json.loads(run.command("report", slug, "--json").stdout)
    assert (data["requirements"][0]["id"], data["audit"]["ok"]) == ("FR-BYE-001", True)


@pytest.mark.parametrize(
    ("module", "arguments"), [("uvicorn", ["board"]), ("jinja2", ["report", SLUG])]
)
def test_without_the_extra_it_says_what_to_install(
    run: FeatureRun, module: str, arguments: list[str]
) -> None:
    run.command("start", TYPE, DESCRIPTION)
    code = f"import sys; sys.modules[{module!r}] = None; sys.argv = {['x', *arguments]!r}\n"
    code += "from phasegate.__main__ import main\nsys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=run.root, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, ".[board]" in done.stderr) == (3, True)


@pytest.mark.demand("X2.b")
def test_a_package_that_was_dispatched_by_hand_and_is_blocked_waits_on_the_decisions_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    project = make_project(tmp_path)
    project.play({"phase": "implement", "steps": [{"print": "BLOCKER: which <b>greeting</b>?"}]})
    with BoardClient(project.root) as board:
        assert "Nothing is waiting for you" in board.get("/decisions").text
        assert project.command("dispatch", "WP01").code == 1
        page = board.get("/decisions").text
    assert "which &lt;b&gt;greeting&lt;/b&gt;?" in page
    assert "phasegate dispatch WP01 --feature 001-user-login" in page
    assert 'class="count">1</span>' in page


def test_a_capability_has_a_page_with_its_tests_drift_and_history(run: FeatureRun) -> None:
    target = "greet.py::greet"
    code = f"- Code: `{target}` (accepted {'0' * 12})"
    text = f"### FR-GREET-001: Greet <b>all</b>\n\nShort.\n\n{code}\n- Test: `gone.py`\n"
    (run.root / "specs").mkdir()
    (run.root / "specs/greet.md").write_text(text)
    run.git("add", "specs")
    run.git("commit", "-qm", "State it")
    with BoardClient(run.root) as board:
        assert "State it" in board.get("/at/repo/specs/greet").text, "nothing is recorded yet"
    run.command("start", TYPE, DESCRIPTION)
    assert run.command("drift", "accept", "FR-GREET-001", "it is right").code == 0
    with BoardClient(run.root) as board:
        assert 'href="/specs"' in board.get("/").text
        assert 'href="/at/repo/specs/greet"' in board.get("/specs").text
        page = board.get("/at/repo/specs/greet").text
        told = Markup(page).text
        for words in (
            "FR-GREET-001",
            "1 drifted",
            f"code {target} was ",
            "gone.py does not exist",
            "State it",
            "drift of FR-GREET-001 accepted: it is right",
        ):
            assert words in told, told
        assert "<b>all" not in page
        assert board.get("/at/repo/specs/none").status == 404
