"""A result of a check is believed if the journal names it, and not otherwise."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from phasegate.engine.project.check_record import CHECKS_RECORDED, CheckRecord
from phasegate.engine.project.project import open_project, open_project_store
from support.git_project import make_repository

TS = "2026-01-01T00:00:00.000Z"


def find_in_another_process(root: Path, key: str) -> str:
    """What a record that knows nothing yet finds in the journal."""
    project = open_project(root)
    with open_project_store(project) as store:
        record = CheckRecord()
        with record.attach(store):
            return record.find(key)


def record_result(root: Path, key: str, digest: str) -> None:
    project = open_project(root)
    with open_project_store(project):
        project.check_record.add(TS, {key: digest})


def test_a_result_outlives_its_process_and_an_unknown_one_is_empty(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo", {"a": "1\n"}).root
    record_result(root, "key", "digest")
    assert find_in_another_process(root, "key") == "digest"
    assert find_in_another_process(root, "other") == ""


def test_an_entry_that_was_changed_in_the_store_is_not_believed(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo", {"a": "1\n"}).root
    record_result(root, "key", "digest")
    record_result(root, "later", "other")
    with sqlite3.connect(open_project(root).location.store_path) as connection:
        planted = json.dumps({"results": {"key": "planted"}}).encode()
        connection.execute(
            "UPDATE event SET payload = ? WHERE kind = ? AND seq = "
            "(SELECT min(seq) FROM event WHERE kind = ?)",
            (planted, CHECKS_RECORDED, CHECKS_RECORDED),
        )
    assert find_in_another_process(root, "key") == ""
    assert find_in_another_process(root, "later") == "other", "control: the next link is intact"


def test_without_a_journal_only_the_results_of_this_process_are_known() -> None:
    record = CheckRecord()
    assert record.find("key") == ""
    record.add(TS, {"key": "digest"})
    assert record.find("key") == "digest"
