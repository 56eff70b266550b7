"""A run whose folders, objects or records are disturbed continues, and skips no review."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from phasegate.core.answer.vocabulary import Verdict
from phasegate.core.machine.feature_events import AnyFeatureEvent, JobEnded, PackageEnded
from phasegate.core.machine.feature_machine import fold_feature_events
from phasegate.core.machine.feature_state import Feature, Step
from phasegate.core.machine.package_events import AnyPackageEvent, PackageLimits, Reviewed
from phasegate.core.machine.package_machine import fold_package_events
from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow.phase_transitions import Stage
from phasegate.engine.journal.entries import (
    FEATURE_STEP,
    PACKAGE_STEP,
    read_feature_step,
    read_package_step,
)
from phasegate.git import Identity, ObjectsMissing
from phasegate.workspace.repository.objects import NewCommit, PathVersion, Signature, write_commits
from support.dispatch_project import approves, implements, make_project, turn, writes
from support.feature_run import SLUG, make_feature_run

Entry = tuple[str, AnyFeatureEvent | AnyPackageEvent]
LIMITS = PackageLimits()
JUDGING_STEPS = (Step.CRITICISE, Step.REVIEW)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    """Every event of a feature from its start to its merge: two packages, revisions, fixes."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("whole")
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setenv("HOME", str(folder))
        run = make_feature_run(folder)
        done = run.command("run", "quick", "Say bye", "--merge")
        assert done.code == 0, done.stderr
        with run.reader() as reader:
            return [*_steps(reader.events(SLUG))]


def _steps(recorded: Iterator[object]) -> Iterator[Entry]:
    for one in recorded:
        if one.kind == FEATURE_STEP:  # type: ignore[attr-defined]
            yield "", read_feature_step(one.payload)  # type: ignore[attr-defined]
        elif one.kind == PACKAGE_STEP:  # type: ignore[attr-defined]
            yield read_package_step(one.payload)  # type: ignore[attr-defined]


def load(entries: list[Entry]) -> Feature | None:
    return fold_feature_events(event for name, event in entries if not name)  # type: ignore[misc]


def load_package(entries: list[Entry], package: str) -> PackageState:
    events = (event for name, event in entries if name == package)
    return fold_package_events(events, LIMITS).state  # type: ignore[arg-type]


def test_a_journal_without_one_of_its_reviews_never_loads_as_complete(
    journal: list[Entry],
) -> None:
    whole = load(journal)
    assert whole is not None
    assert whole.workflow.stage is Stage.COMPLETED, "the control: with all of its reviews it does"
    feature: Feature | None = None
    found = 0
    for index, (name, event) in enumerate(journal):
        without = journal[:index] + journal[index + 1 :]
        if isinstance(event, Reviewed) and event.verdict is Verdict.PASS:
            found += 1
            assert load_package(journal, name) is PackageState.DONE
            assert load_package(without, name) is not PackageState.DONE
        if not name:
            due = feature.todo[0] if feature is not None and feature.todo else None
            if isinstance(event, JobEnded) and due in JUDGING_STEPS:
                found += 1
                loaded = load(without)
                assert loaded is not None
                assert loaded.workflow.stage is not Stage.COMPLETED
                assert loaded.merged == ""
            feature = fold_feature_events(one for key, one in journal[: index + 1] if not key)  # type: ignore[misc]
    assert found >= 6


def test_whatever_was_recorded_last_a_package_counts_as_done_only_after_its_review(
    journal: list[Entry],
) -> None:
    ended = 0
    for end in range(1, len(journal) + 1):
        kept = journal[:end]
        feature = load(kept)
        assert feature is not None
        for name, state in feature.packages.items():
            if state is PackageState.DONE:
                assert load_package(kept, name) is PackageState.DONE
        ended += isinstance(kept[-1][1], PackageEnded)
    assert ended >= 3, "the control: packages end in this journal"


def test_after_the_heads_folder_is_removed_in_a_run_the_next_command_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    project = make_project(tmp_path, run='sandbox = "none"')
    heads = project.project.location.state_home / "heads"
    removal = [sys.executable, "-c", f"import shutil; shutil.rmtree({str(heads)!r})"]
    project.play(
        turn("implement", {"run": removal}, *writes("src/login.ts"), {"result": "success"}),
        approves(),
    )
    first = project.program("dispatch", "WP01")
    assert first.code in (0, 3, 4), first.stderr
    assert "internal error" not in first.stderr
    project.play(implements("src/login.ts"), approves())
    again = project.program("dispatch", "WP01")
    assert (again.code, project.rows()["WP01"].state) == (0, PackageState.DONE), again.stderr


def test_an_object_that_the_user_pruned_is_named_as_such(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    repository = project.project.repository
    main = project.git("rev-parse", "main")
    me = Signature(Identity("A", "a@example.invalid"), 1)
    known = project.git("rev-parse", "main:README.md")
    for blob, is_there in ((known, True), ("12" * 20, False)):
        new = NewCommit(
            parents=(main,),
            author=me,
            committer=me,
            message="WP01: x",
            paths={"a": PathVersion("100644", blob)},
        )
        if is_there:
            assert write_commits(repository, [new])
        else:
            with pytest.raises(ObjectsMissing) as missing:
                write_commits(repository, [new])
            assert "git gc --prune=now" in missing.value.hint
