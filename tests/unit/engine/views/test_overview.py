"""The overview: which feature is shown, what waits for the user, and why a run stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from phasegate.core.display.status import NOTICE_KIND, RUN_FAILED_PREFIX
from phasegate.engine.journal.questions import QUESTION_ASKED
from phasegate.engine.views.overview import (
    FLEET_STATUS_FILE,
    Overview,
    build_overview,
    feature_card,
    find_package_cards,
    find_worker,
    list_features,
    list_pending_decisions,
    list_waiting_features,
    package_cards,
    read_fleet_status,
)
from phasegate.errors import ConfigError
from phasegate.storage.lock import feature_lock
from phasegate.storage.row_events import (
    job_ended_event,
    package_changed_event,
    workflow_changed_event,
)
from phasegate.storage.rows import JobRow, NewEvent, PackageRow, WorkflowRow
from support.plain_project import TS, MemoryStore


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryStore]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with MemoryStore(tmp_path) as opened:
        (opened.location.root / ".git").mkdir(parents=True)
        yield opened


def start(
    store: MemoryStore, slug: str, stage: str = "working", *, position: int = 1, reason: str = ""
) -> WorkflowRow:
    row = WorkflowRow(
        feature=slug,
        type="feature",
        description="",
        base="main",
        phases="01-requirements 06-implementation",
        position=position,
        stage=stage,
        round=1,
        reason=reason,
    )
    store.append_unconditionally(slug, TS, [workflow_changed_event(row)])
    return row


def load(store: MemoryStore, slug: str, id_: str, state: str) -> None:
    row = PackageRow(slug, id_, "a title", state, reason="why")
    store.append_unconditionally(slug, TS, [package_changed_event(row)])


def note(store: MemoryStore, slug: str, text: str) -> None:
    payload = json.dumps({"work": "", "text": text}).encode()
    store.append_unconditionally(slug, TS, [NewEvent(NOTICE_KIND, payload)])


def overview_of(store: MemoryStore, feature: str | None = None) -> Overview:
    return build_overview(store, str(store.location.root), feature)


def test_the_active_feature_that_changed_last_is_shown_and_an_ended_one_only_if_asked(
    store: MemoryStore,
) -> None:
    for slug, stage in (("001-a", "working"), ("002-b", "blocked"), ("003-c", "completed")):
        start(store, slug, stage)
    shown = overview_of(store)
    assert shown.workflow is not None
    assert shown.workflow.feature == "002-b"
    assert [card.feature for card in shown.others] == ["001-a"]
    assert [card.feature for card in shown.ended] == ["003-c"]
    asked = overview_of(store, "003-c").workflow
    assert asked is not None
    assert asked.feature == "003-c"


def test_a_feature_that_is_not_recorded_is_refused_with_the_known_names(
    store: MemoryStore,
) -> None:
    start(store, "001-a")
    with pytest.raises(ConfigError) as raised:
        overview_of(store, "009-z")
    assert raised.value.hint == "available: 001-a"
    with pytest.raises(ConfigError):
        list_features(store, "009-z")
    assert list_features(store) == list_features(store, "001-a") == ["001-a"]


def test_a_blocked_package_waits_unless_its_feature_waits_itself_or_has_ended(
    store: MemoryStore,
) -> None:
    start(store, "001-a")
    start(store, "002-b", "cancelled")
    start(store, "004-d", "blocked", reason="no key")
    for slug in ("001-a", "002-b", "003-c", "004-d"):
        load(store, slug, "WP01", "BLOCKED")
        load(store, slug, "WP02", "DONE")
    expected = {
        ("001-a", "WP01", "show"),
        ("003-c", "WP01", "dispatch"),
        ("004-d", "", "resolve"),
    }
    assert {(one.feature, one.package, one.asked) for one in overview_of(store).waiting} == expected
    listed = list_pending_decisions(store)
    assert {(one.feature, one.package, one.asked) for one in listed} == expected


def test_blocked_and_finished_features_wait_and_working_ones_do_not(store: MemoryStore) -> None:
    start(store, "001-a", "blocked", reason="no key")
    start(store, "002-b", "gate-passed")
    start(store, "003-c", "gate-passed", position=0)
    start(store, "004-d", "working")
    waiting = {one.feature: (one.asked, one.reason) for one in overview_of(store).waiting}
    assert waiting == {"001-a": ("resolve", "no key"), "002-b": ("complete", "")}
    assert set(list_waiting_features(store)) == {"001-a", "002-b"}


def test_the_question_of_an_agent_waits_for_an_answer(store: MemoryStore) -> None:
    start(store, "001-a")
    asked = {"id": "q1", "work": "WP01", "text": "which?", "options": ["a", "b"]}
    event = NewEvent(QUESTION_ASKED, json.dumps(asked).encode())
    store.append_unconditionally("001-a", TS, [event])
    [one] = overview_of(store).waiting
    assert (one.asked, one.question, one.reason, one.options) == (
        "answer",
        "q1",
        "which?",
        ("a", "b"),
    )


def test_a_failed_run_is_the_reason_only_while_nothing_happened_after_it(
    store: MemoryStore,
) -> None:
    row = start(store, "001-a", reason="recorded")
    note(store, "001-a", f"{RUN_FAILED_PREFIX} disk full")
    assert feature_card(store, row).reason == f"{RUN_FAILED_PREFIX} disk full"
    note(store, "001-a", "something else")
    assert feature_card(store, row).reason == "recorded"


def test_who_holds_the_lock_works_unless_it_gives_a_short_order(store: MemoryStore) -> None:
    row = start(store, "001-a")
    assert feature_card(store, row).standing == "stopped"
    locks = store.location.locks_folder
    locks.mkdir(parents=True)
    with feature_lock(locks, "001-a", "run 001-a", TS):
        worker = find_worker(store, "001-a")
        assert worker is not None
        assert (worker.pid, worker.command) == (os.getpid(), "run 001-a")
        assert feature_card(store, row).standing == "working"
        assert find_worker(store, "001-a", "WP01") is None
    with feature_lock(locks, "001-a", "retry", TS):
        assert find_worker(store, "001-a") is None


def test_packages_are_in_the_order_of_their_numbers(store: MemoryStore) -> None:
    for id_ in ("WP10", "WP02", "WP100"):
        load(store, "001-a", id_, "PLANNED")
    assert [card.id for card in package_cards(store, "001-a")] == ["WP02", "WP10", "WP100"]


def test_a_package_is_found_in_every_feature_with_its_own_jobs(store: MemoryStore) -> None:
    for slug in ("001-a", "002-b"):
        load(store, slug, "WP01", "DOING")
    job = JobRow("001-a", "j1", "WP01", "implement", 1, "codex", TS, tokens=7)
    other = job._replace(id="j2", wp="WP02")
    store.append_unconditionally("001-a", TS, [job_ended_event(job), job_ended_event(other)])
    found = {card.feature: card for card in find_package_cards(store, "WP01")}
    assert [one.id for one in found["001-a"].jobs or ()] == ["j1"]
    assert found["001-a"].spent.tokens == 7
    assert found["002-b"].jobs == ()
    for reader in (store, None):
        with pytest.raises(ConfigError, match="there is no package WP09"):
            find_package_cards(reader, "WP09")


@pytest.mark.parametrize(
    "content",
    [
        *(None, b"", b"{}", b"7", b"[]", b"[1, 2]", b"\xff", b"[", b'["t", "b", "s", "", 7, []]'),
        b'["t", "b", "s", "", [["001-a"]], []]',
        b'["t", "b", "s", "", [], [["q"]]]',
    ],
)
def test_a_missing_or_damaged_status_of_a_fleet_is_none(
    store: MemoryStore, tmp_path: Path, content: bytes | None
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    store.location = store.location._replace(fleet_copy=copy)
    if content is not None:
        (copy / FLEET_STATUS_FILE).write_bytes(content)
    assert read_fleet_status(store) is None


def test_in_a_fleet_the_worker_is_the_one_that_the_server_named(
    store: MemoryStore, tmp_path: Path
) -> None:
    start(store, "001-a")
    copy = tmp_path / "copy"
    copy.mkdir()
    told = [TS, "b", "s", "", [["001-a", TS, "w1", TS], ["002-b", TS]], [["q", TS, ["002-b"]]]]
    (copy / FLEET_STATUS_FILE).write_text(json.dumps(told))
    store.location = store.location._replace(fleet_copy=copy)
    worker = find_worker(store, "001-a")
    assert worker is not None
    assert worker.command == "w1"
    assert find_worker(store, "002-b") is None
    assert find_worker(store, "001-a", "WP01") is None
    status = read_fleet_status(store)
    assert status is not None
    assert status.unserved[0].features == ("002-b",)
    assert status.paused == ""
    (copy / FLEET_STATUS_FILE).write_text(json.dumps([*told, [], "noon"]))
    paused = read_fleet_status(store)
    assert paused is not None
    assert paused.paused == "noon"
