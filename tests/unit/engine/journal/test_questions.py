"""Questions of agents, as the record has them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from phasegate.engine.journal.questions import (
    QUESTION_ANSWERED,
    QUESTION_ASKED,
    quote_for_shell,
    read_all_open_questions,
    read_open_questions,
    read_questions,
)
from phasegate.storage.row_events import workflow_changed_event
from phasegate.storage.rows import NewEvent, WorkflowRow
from support.plain_project import TS, MemoryStore

SLUG = "001-a"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    with MemoryStore(tmp_path) as opened:
        yield opened


def record(store: MemoryStore, kind: str, data: object, feature: str = SLUG) -> None:
    event = NewEvent(kind, json.dumps(data).encode())
    store.append_unconditionally(feature, TS, [event])


def ask(store: MemoryStore, id_: str, feature: str = SLUG) -> None:
    asked = {"id": id_, "job": "j", "work": "WP01", "text": f"why {id_}?", "options": ["a", "b"]}
    record(store, QUESTION_ASKED, asked, feature)


def test_an_answer_closes_its_own_question_only(store: MemoryStore) -> None:
    ask(store, "q1")
    ask(store, "q2")
    record(store, QUESTION_ANSWERED, {"id": "q1", "text": "so", "by": {"person": "Ada"}})
    assert [(one.id, one.answer, one.by) for one in read_questions(store, SLUG)] == [
        ("q1", "so", "Ada"),
        ("q2", None, ""),
    ]
    assert [one.id for one in read_open_questions(store, SLUG)] == ["q2"]


def test_an_answer_to_no_question_and_an_entry_that_is_no_object_are_passed_over(
    store: MemoryStore,
) -> None:
    record(store, QUESTION_ANSWERED, {"id": "q9", "text": "so"})
    record(store, QUESTION_ASKED, ["q8"])
    assert read_questions(store, SLUG) == ()


@pytest.mark.parametrize(("stage", "is_listed"), [("working", True), ("cancelled", False)])
def test_a_feature_that_has_ended_asks_nothing_any_more(
    store: MemoryStore, stage: str, is_listed: bool
) -> None:
    ask(store, "q1")
    row = WorkflowRow(
        feature=SLUG,
        type="feature",
        description="",
        base="main",
        phases="01-requirements",
        position=0,
        stage=stage,
        round=1,
    )
    store.append_unconditionally(SLUG, TS, [workflow_changed_event(row)])
    assert bool(read_all_open_questions(store)) is is_listed


@pytest.mark.parametrize(
    "text", ["so long", "$(touch planted)", "`touch planted`", 'a"; touch planted; "', "it's $HOME"]
)
def test_a_pasted_answer_runs_nothing_of_the_agent(tmp_path: Path, text: str) -> None:
    command = f"printf %s {quote_for_shell(text)}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, [*tmp_path.iterdir()]) == (text, [])
