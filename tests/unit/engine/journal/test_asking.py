"""Asking and answering: bounds, secrets, and one answer for each question."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from phasegate.config.settings import AgentSettings, Config, HarnessKind
from phasegate.core.workflow.origin import OrderOrigin
from phasegate.engine.journal.asking import (
    MAX_OPEN_QUESTIONS,
    MAX_OPTION_CHARS,
    MAX_OPTIONS,
    MAX_TEXT_CHARS,
    answer_question,
    ask_question,
    find_question,
)
from phasegate.engine.project.project import Project
from phasegate.errors import ConfigError, StateConflict
from support.memory_ports import CountingClock
from support.plain_project import MemoryStore, make_plain_project

SLUG = "001-a"
ADA = OrderOrigin("Ada", "cli")
AGENT = AgentSettings(HarnessKind("command"), command=("x",), env=("MY_API_KEY",))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = make_plain_project(tmp_path, Config(agents={"one": AGENT}))
    return made._replace(clock=NumberedClock())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    with MemoryStore(tmp_path) as opened:
        yield opened


class NumberedClock(CountingClock):
    """Ids that differ in their first eight characters, as random ones do."""

    def __init__(self) -> None:
        super().__init__()
        self._number = 0

    def new_id(self) -> str:
        self._number += 1
        return f"q{self._number:07}-rest"


def ask(project: Project, store: MemoryStore, text: str, *options: str, feature: str = SLUG) -> str:
    return ask_question(project, store, feature, "WP01", "job", text, options)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("  \n", ()),
        ("x" * (MAX_TEXT_CHARS + 1), ()),
        ("why?", ("a",) * (MAX_OPTIONS + 1)),
        ("why?", ("a", " ")),
        ("why?", ("x" * (MAX_OPTION_CHARS + 1),)),
    ],
)
def test_a_question_out_of_bounds_is_not_recorded(
    project: Project, store: MemoryStore, text: str, options: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError):
        ask(project, store, text, *options)
    assert store.last_seq(SLUG) == 0
    ask(project, store, "x" * MAX_TEXT_CHARS, *["x" * MAX_OPTION_CHARS] * MAX_OPTIONS)
    assert store.last_seq(SLUG) == 1


@pytest.mark.parametrize(
    ("text", "option"), [("is s3cr3t-value-0815 right?", "a"), ("why?", "s3cr3t-value-0815")]
)
def test_a_question_with_a_secret_of_its_job_is_not_recorded(
    project: Project, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, text: str, option: str
) -> None:
    monkeypatch.setenv("MY_API_KEY", "s3cr3t-value-0815")
    with pytest.raises(ConfigError, match="secret"):
        ask(project, store, text, option)
    assert store.last_seq(SLUG) == 0


def test_so_many_questions_may_be_open_and_an_answer_makes_room(
    project: Project, store: MemoryStore
) -> None:
    ids = [ask(project, store, "why?") for _ in range(MAX_OPEN_QUESTIONS)]
    with pytest.raises(ConfigError, match="are open"):
        ask(project, store, "one more?")
    ask(project, store, "another feature?", feature="002-b")
    answer_question(project, store, ids[0], "because", ADA, SLUG)
    ask(project, store, "now?")


def test_a_question_is_answered_once(project: Project, store: MemoryStore) -> None:
    id_ = ask(project, store, "why?")
    answered = answer_question(project, store, id_[:4], "  because ", ADA)
    assert (answered.answer, answered.by) == ("because", "Ada")
    seq = store.last_seq(SLUG)
    with pytest.raises(StateConflict, match="already answered: because"):
        answer_question(project, store, id_, "no", ADA)
    assert store.last_seq(SLUG) == seq


@pytest.mark.parametrize("text", ["", " \n ", "x" * (MAX_TEXT_CHARS + 1)])
def test_an_answer_out_of_bounds_is_refused(
    project: Project, store: MemoryStore, text: str
) -> None:
    id_ = ask(project, store, "why?")
    with pytest.raises(ConfigError):
        answer_question(project, store, id_, text, ADA)
    assert find_question(store, id_).answer is None


def test_a_prefix_must_name_exactly_one_question(project: Project, store: MemoryStore) -> None:
    for feature in (SLUG, "002-b"):
        ask(project, store, "why?", feature=feature)
    with pytest.raises(ConfigError, match="several"):
        find_question(store, "q000")
    for unknown in ("", "zzz"):
        with pytest.raises(ConfigError, match="no question"):
            find_question(store, unknown)
    assert find_question(store, "q0000002").feature == "002-b"
    assert find_question(store, "q000", SLUG).id == "q0000001"
