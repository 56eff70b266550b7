"""The board in a real Chromium: every page while a run moves in another process, every button, hostile text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from phasegate.engine.drive import orders
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.engine.tools.demo import make_demo_project
from phasegate.storage.row_events import package_changed_event, workflow_changed_event
from phasegate.storage.rows import PackageRow, WorkflowRow
from support.board_client import BoardClient
from support.feature_run import (
    DESCRIPTION,
    SCENARIO,
    SLUG,
    TYPE,
    FeatureRun,
    implements,
    judges,
    make_feature_run,
)
from support.markup_payloads import PAYLOADS

PICTURES = os.environ.get("PICTURES", "")
GOODBYE = "Say goodbye to people in their own language"
SIZES = {"light": (1280, 900), "dark": (1280, 900), "phone": (390, 844)}


class Tab:
    """A tab of the browser, in which nothing may go wrong."""

    def __init__(self, browser: Any, board: BoardClient, look: str = "light") -> None:
        width, height = SIZES[look]
        scheme = "dark" if look == "dark" else "light"
        self.context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": height}
        )
        name, _, value = board.cookie.partition("=")
        self.context.add_cookies(
            [{"name": name, "value": value, "url": f"http://{board.host}", "httpOnly": True}]
        )
        self.base, self.page, self.wrong = (
            f"http://{board.host}",
            self.context.new_page(),
            list[str](),
        )
        self.page.on(
            "console",
            lambda line: (
                self.wrong.append(line.text) if line.type in ("error", "warning") else None
            ),
        )
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", self._dialog)
        self.refused: list[str] = []  # with what was asked for, which the console does not say
        self.page.on(
            "response",
            lambda one: self.refused.append(f"{one.status} {one.url}") if one.status > 399 else 0,
        )
        self.asked: list[str] = []

    def _dialog(self, dialog: Any) -> None:
        self.asked.append(dialog.message)
        dialog.accept()

    def open(self, path: str) -> Any:
        self.page.goto(f"{self.base}{path}")
        self.page.wait_for_selector("#live[data-state=live]")
        return self.page

    def violations(self, axe: str) -> list[str]:
        """What axe finds on the page."""
        self.page.evaluate(axe)
        found = self.page.evaluate("async () => (await axe.run()).violations")
        return [f"{one['id']}: {one['nodes'][0]['html'][:120]}" for one in found]

    def picture(self, name: str) -> None:
        if PICTURES:
            Path(PICTURES).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=f"{PICTURES}/{name}.png", full_page=True)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FeatureRun:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return make_feature_run(tmp_path)


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FeatureRun:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = make_demo_project(tmp_path, ("project",), "feature.toml").root
    root.rename(tmp_path / "repo")
    return FeatureRun(tmp_path)


def run_detached(where: FeatureRun, *arguments: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "phasegate", "run", *arguments]
    return subprocess.Popen(
        argv, cwd=where.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


@pytest.mark.demand("X2.b")
def test_every_page_is_live_accessible_and_readable_on_a_phone_and_in_the_dark(
    browser: Any, axe: str, demo: FeatureRun
) -> None:
    slug = "001-say-goodbye-to-people-in"
    demo.run("start", "feature", GOODBYE)
    with BoardClient(demo.root) as board:
        tab = Tab(browser, board)
        page = tab.open(f"/at/repo/feature/{slug}")
        tab.picture("feature-stopped")
        page.evaluate("window.kept = true")  # gone, if the page were loaded again
        process = run_detached(demo)
        page.wait_for_selector("text=Agents are working", timeout=60_000)
        page.wait_for_selector("text=GATE-05 PASSED", timeout=300_000)
        page.wait_for_selector(".node.is-doing", timeout=120_000)
        tab.picture("feature-in-work")
        page.wait_for_selector("text=Merge into main", timeout=300_000)
        process.wait(60)
        summary = page.inner_text(".decision .summary")
        assert "6 files, +52 -0" in summary
        assert "7 passed, 0 failed, 0 skipped; before: 1 passed" in summary
        assert "3 requirements, each with a test" in summary
        assert "23 agent runs" in summary
        # The badge and the title follow without a reload
        page.wait_for_function("document.title.startsWith('(1) ')")
        assert page.inner_text("#count") == "1"
        assert page.evaluate("window.kept") is True
        jobs = page.locator("svg a[href*='/job/']").first.get_attribute("href")
        paths = {
            "overview": "/",
            "feature": f"/at/repo/feature/{slug}",
            "decisions": "/decisions",
            "job": jobs,
        }
        more = {
            "package": f"/at/repo/feature/{slug}/WP01",
            "phase": f"/at/repo/feature/{slug}/phase/01-requirements",
            "timeline": "/timeline",
            "audit": "/audit?at=repo",
        }
        for look in SIZES:
            other = Tab(browser, board, look)
            for name, path in {**paths, **more}.items():
                shown = other.open(path)
                if name == "job":
                    shown.wait_for_selector("#log pre")
                if name == "feature":
                    shown.click(".file-diff summary >> nth=0")
                    shown.wait_for_selector(".file-diff .diff")
                assert other.violations(axe) == [], (look, name)
                across = shown.evaluate(
                    "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                )
                assert across <= 0, (look, name)
                other.picture(f"{name}-{look}")
            assert other.wrong == []
            other.open("/at/repo/job/nothing")  # an error is shown inside the frame
            assert other.violations(axe) == [], look
            other.picture(f"error-{look}")
            other.context.close()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        assert tab.wrong == []


@pytest.mark.demand("X2.b")
def test_every_button_does_what_it_says_and_a_reason_survives_what_happens_meanwhile(
    browser: Any, run: FeatureRun
) -> None:
    stray = implements("write", "../outside.py", "x = 1\n", package="WP01", round=1)
    stray["steps"][0] = {"write": "stray.py", "content": "x = 1\n"}
    run.play(stray, *SCENARIO)
    with BoardClient(run.root) as board:
        tab = Tab(browser, board)
        page = tab.open("/")
        page.click("text=Start a feature")
        page.select_option("#type", TYPE)
        page.fill("#description", DESCRIPTION)
        page.click("button:has-text('Start')")
        page.wait_for_selector(f".tile a[href$='{SLUG}']", timeout=60_000)
        page = tab.open(f"/at/repo/feature/{SLUG}")
        page.wait_for_selector(
            ".decision.is-waiting", timeout=120_000
        )  # WP01 strayed out of its scope
        assert "stray.py" in page.inner_text("main")
        assert "+x = 1" in page.inner_text(".diff")  # what was refused, above the decision
        page.click("svg a[href$='/WP01']")
        page.wait_for_selector(".allow input[name=seen]", state="attached")
        page = tab.open(f"/at/repo/feature/{SLUG}")
        page.fill(".decision textarea", "allowed")
        with open_project_store(
            open_project(run.root)
        ) as store:  # something happens while the person types
            orders.add_notice(open_project(run.root), store, SLUG, "somebody else was here")
        page.wait_for_selector("text=somebody else was here")
        assert page.input_value(".decision textarea") == "allowed"
        page.fill(".allow input[name=text]", "it belongs there")
        page.click("text=Accept this change and continue")
        page.wait_for_selector("text=WP01 may change stray.py")
        page.wait_for_selector("text=Stop the run", timeout=60_000)
        page.click("text=Stop the run")
        page.wait_for_selector("text=Not running", timeout=120_000)
        page.fill(".decision textarea", "look at it")
        page.click("text=Pause")
        page.wait_for_selector("text=Your decision")
        assert (
            page.input_value(".decision textarea") == ""
        )  # its reason went with it, also before the answer is here
        page.click("text=Send back with this answer")
        page.wait_for_selector("#notice .is-bad")  # it needs a reason
        page.fill(".decision textarea", "go on")
        page.click("text=Send back with this answer")
        page.wait_for_selector("text=Merge into main", timeout=120_000)
        page.fill(".decision textarea", "once more")
        page.select_option("select[name=phase]", "06-implementation")
        page.click("button:has-text('Back to')")
        page.wait_for_selector("text=Agents are working", timeout=60_000)
        page.wait_for_selector("text=Merge into main", timeout=120_000)
        page.click("text=Merge into main")
        page.wait_for_selector("text=merged into main at", timeout=120_000)
        assert [one.partition(" ")[0] for one in tab.asked] == ["Stop", "Return", "Archive"]
        page = tab.open("/audit?at=repo")
        page.click("text=Verify now")
        page.wait_for_selector("text=Verified: ")
        assert [one.partition("/order/")[2] for one in tab.refused] == ["resolve"], (
            tab.refused
        )  # it lacked a reason


@pytest.mark.demand("X2.c")
def test_hostile_text_does_nothing_in_a_browser(browser: Any, run: FeatureRun) -> None:
    run.play(judges("challenge", "PASS"))
    with open_project_store(run.project) as store:
        slugs = [
            orders.start_workflow(run.project, store, TYPE, f"{number} {text}")
            for number, text in enumerate(PAYLOADS)
        ]
        orders.execute_order(
            run.project, store, slugs[0], orders.OrderRequest("escalate", " ".join(PAYLOADS))
        )
    with BoardClient(run.root) as board:
        tab = Tab(browser, board)
        requests: list[str] = []
        tab.page.on("request", lambda request: requests.append(request.url))
        for path in (
            "/",
            "/decisions",
            "/timeline",
            "/audit?at=repo",
            f"/at/repo/feature/{slugs[0]}",
        ):
            page = tab.open(path)
            assert page.title().endswith("· Phasegate")
            page.mouse.move(300, 300)
            page.keyboard.press("Tab")
        assert page.evaluate("document.cookie") == ""
        assert tab.asked == []
        assert tab.wrong == []
        assert not [
            url
            for url in requests
            if not url.startswith(tab.base) or "owned" in url.partition("?")[0][-6:]
        ]
        plain = browser.new_context().new_page()  # the control: elsewhere they act
        plain.set_content("".join(f"<p>{text}</p>" for text in PAYLOADS))
        assert plain.title() == "owned"


def add_features(store: Any, project: Any, number: int) -> None:
    """Record features as rows, which is all that lists read."""
    for index in range(10, 10 + number):
        row = WorkflowRow(
            feature=f"{index:03}-feature-number-{index}",
            type="quick",
            description=f"Feature number {index} with a description of ordinary length",
            base="main",
            phases="01-requirements 06-implementation 08-code-review",
            position=index % 3,
            stage=("working", "blocked", "completed", "cancelled")[index % 4],
            round=1,
            reason="spec.md: what is the average of no prices?" if index % 4 == 1 else "",
            since=project.now(),
        )
        store.append_unconditionally(row.feature, project.now(), [workflow_changed_event(row)])


def test_pages_stay_short_and_accessible_without_features_and_with_200(
    browser: Any, axe: str, run: FeatureRun
) -> None:
    run.play(judges("challenge", "PASS"))
    with BoardClient(run.root) as board:
        for number in (0, 200):
            if number:
                with open_project_store(run.project) as store:
                    slug = orders.start_workflow(run.project, store, TYPE, DESCRIPTION)
                    add_features(store, run.project, number)
                    packages = [
                        PackageRow(
                            slug, f"WP{n:02}", f"Package {n}", "DONE" if n < 90 else "PLANNED"
                        )
                        for n in range(1, 121)
                    ]
                    seeded = [package_changed_event(row) for row in packages]
                    store.append_unconditionally(slug, run.project.now(), seeded)
            for look in SIZES:
                tab = Tab(browser, board, look)
                paths = {"overview": "/", "decisions": "/decisions", "timeline": "/timeline"}
                paths |= {"audit": "/audit"} | (
                    {"feature": f"/at/repo/feature/{slug}"} if number else {}
                )
                for name, path in paths.items():
                    page = tab.open(path)
                    assert tab.violations(axe) == [], (look, name, number)
                    across = page.evaluate(
                        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                    )
                    assert across <= 0, (look, name, number)
                    tab.picture(f"{name}-{number}-{look}")
                assert tab.wrong == []
                tab.context.close()
        tab = Tab(browser, board)
        page = tab.open("/")
        assert page.locator(".tile").count() <= 60, "three groups of at most 20"
        page = tab.open(f"/at/repo/feature/{slug}")
        height = page.evaluate("document.documentElement.scrollHeight")
        assert height < 4000, "120 packages are in a list of their own height"
        page = tab.open("/")
        page.fill("#search", "number 42")
        page.click("button:has-text('Search')")
        page.wait_for_selector("text=Feature number 42 ")
        assert page.locator(".tile").count() == 1
