"""Several agents on one package at once, and what agents claim about their work (D7.f, D10, D11)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from phasegate.core.plan.work_package import PackageState
from phasegate.engine.drive.run_package import Stopped, dispatch_package
from phasegate.engine.journal.package import find_package
from phasegate.engine.project.project import open_project_store
from phasegate.storage.reader import open_store_reader
from phasegate.storage.row_events import job_ended_event, job_started_event
from phasegate.storage.rows import JobRow
from support.dispatch_project import (
    FEATURE,
    SLUG,
    DispatchProject,
    Step,
    approves,
    make_project,
    package,
    turn,
    writes,
)
from support.quick_dispatch import FIRST, SECOND, two_agents_two_rounds
from support.sandboxed import eventually, processes_with

ANSWER = """echo '{"job_id": "'$AGILEPLUS_JOB_ID'", "wp_id": "WP01", "success": true, "status": "completed"}'"""
# `$me` is 0 or 1, `$file` is the agent's own; what follows is a test's.
WHO = f"""
envelope=$(cat)
if [ "$PHASEGATE_PHASE" = review ]; then echo "<review>PASS</review>"; exit 0; fi
case "$envelope" in *'"agent_index":1'*) me=1; file={SECOND};; *) me=0; file={FIRST};; esac
mkdir -p src; echo done > $file
"""


def two_agents(folder: Path, does: str, run: str = "") -> DispatchProject:
    return two_agents_two_rounds(folder, run, WHO + does)


def events(project: DispatchProject, kind: str) -> list[dict[str, Any]]:
    reader = open_store_reader(project.project.location)
    assert reader is not None
    with reader:
        return [
            msgspec.json.decode(event.payload)
            for event in reader.events(SLUG)
            if event.kind == kind
        ]


@pytest.mark.demand("D11.b", "D11.c")
def test_the_agents_of_a_package_work_at_the_same_time(tmp_path: Path) -> None:
    """Each waits for the other: one after the other, they would wait until their time is over."""
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    wait = f"touch {meeting}/$me; until test -e {meeting}/0 -a -e {meeting}/1; do sleep 0.02; done"
    project = two_agents(tmp_path, f"{wait}\n{ANSWER}\n", 'sandbox = "none"')
    report = project.dispatch()
    assert report.state is PackageState.DONE, report.reason
    assert {FIRST, SECOND} <= project.files_of(FEATURE)


@pytest.mark.demand("D11.e", "D9.c")
def test_when_one_agent_fails_the_others_are_ended(tmp_path: Path) -> None:
    project = two_agents(tmp_path, f"if [ $me = 1 ]; then exit 3; fi\nexec sleep 600\n{ANSWER}\n")
    report = project.dispatch()
    assert (report.state, "exit status 3" in report.reason) == (PackageState.BLOCKED, True)
    assert processes_with(str(project.scenario)) == []
    assert all(job.ended and job.outcome == "failed" for job in project.jobs())
    assert project.audit_problems() == []
    project.scenario.write_text(WHO + ANSWER)
    assert project.dispatch().state is PackageState.DONE


@pytest.mark.demand("D10.a", "D11.b")
def test_an_agent_that_is_tried_again_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "phasegate.engine.drive.agent_wait.retry_backoff_s", lambda attempt, jitter: 0.01
    )
    fails = "if [ $me = 0 -a ! -e .again ]; then touch .again; echo ECONNRESET >&2; exit 1; fi; rm -f .again"
    project = two_agents(tmp_path, f"{fails}\n{ANSWER}\n")
    assert project.dispatch().state is PackageState.DONE
    assert sorted(job.outcome for job in project.jobs() if job.phase == "implement") == [
        "done",
        "done",
        "transient",
    ]


@pytest.mark.demand("D11.b", "W5.a")
def test_a_dispatch_that_is_cancelled_ends_its_agents_and_closes_their_jobs(tmp_path: Path) -> None:
    project = two_agents(tmp_path, "exec sleep 600\n")
    cancelled = threading.Event()
    opened = project.project
    with open_project_store(opened) as store, ThreadPoolExecutor(1) as pool:
        one = find_package(store, "WP01", SLUG)
        done = pool.submit(
            dispatch_package,
            opened,
            store,
            one,
            agent=None,
            report_line=lambda _: None,
            stop=cancelled,
        )
        folders = [project.root / ".worktrees" / f"{SLUG}-WP01-agent{index}" for index in (0, 1)]
        assert eventually(
            lambda: (folders[0] / FIRST).exists() and (folders[1] / SECOND).exists(), within_s=60
        )
        cancelled.set()
        assert done.result(timeout=60) == Stopped("WP01"), (
            "a value: a stop is not an exception out of a thread"
        )
    assert processes_with(str(project.scenario)) == []
    assert [job.outcome for job in project.jobs()] == ["lost", "lost"]
    assert project.audit_problems() == []
    assert project.rows()["WP01"].state == "DOING"


SAID: Step = {
    "commits": [{"sha": "deadbeefcafe", "message": "WP01: All of it"}],
    "artifacts": {
        "files_created": ["src/login.ts", "src/never.ts", "README.md"],
        "test_coverage": "98%",
    },
}


@pytest.mark.demand("D7.e", "D7.f")
def test_what_an_agent_claims_and_is_not_so_goes_on_record_and_to_the_reviewer(
    tmp_path: Path,
) -> None:
    project = make_project(tmp_path)
    project.play(
        turn(
            "implement",
            *writes("src/login.ts"),
            {"commit": "WP01: Write"},
            {"result": "success", **SAID},
        ),
        approves(),
    )
    said: list[str] = []
    assert project.dispatch(said=said).state is PackageState.DONE, "git and the disk decide"
    (wrong,) = events(project, "agent.claimed-falsely")
    implementer, reviewer = project.jobs()
    assert (wrong["package"], wrong["round"], wrong["job"], wrong["agent"]) == (
        "WP01",
        1,
        implementer.id,
        "actor",
    )
    assert [claim for claim, _ in wrong["claims"]] == [
        "commit deadbeefcafe",
        "created src/never.ts",
        "created README.md",
        "coverage 98%",
    ]
    told = project.prompt(reviewer.id)
    assert (
        "The agent actor said: commit deadbeefcafe. But there is no such commit after the base."
        in told
    )
    assert "said: created README.md. But it existed before." in told
    assert any("src/never.ts" in line for line in said)
    assert "agent.claimed-falsely" in project.command("audit", "show", "--chain").stdout
    assert project.audit_problems() == []


@pytest.mark.demand("D7.f")
def test_an_agent_that_says_what_is_so_is_not_accused(tmp_path: Path) -> None:
    """By the ids of its own commits, in the checkout of its own."""
    commit = 'git add $file; git commit -q -m "WP01: Write"; id=$(git rev-parse HEAD)'
    fields = '"commits": [{"sha": "\'$id\'", "message": "WP01: Write"}], "artifacts": {"files_created": ["\'$file\'"]}'
    answer = ANSWER.replace('"status"', f'{fields}, "status"')
    project = two_agents(tmp_path, f"{commit}\n{answer}\n")
    assert project.dispatch().state is PackageState.DONE
    claimed = events(project, "agent.claimed")
    assert sorted(one["agent_index"] for one in claimed) == [0, 1]
    assert all(len(one["said"]["commits"]) == 1 for one in claimed), "control: it was said"
    assert events(project, "agent.claimed-falsely") == []
    assert "remarks.md" not in project.prompt(project.jobs()[-1].id)


@pytest.mark.demand("D6.k")
def test_the_configured_litter_is_neither_harvested_nor_judged(tmp_path: Path) -> None:
    litter = {"run": "mkdir -p .mytool out; echo x > .mytool/cache; echo x > out/log"}
    documents = {"WP01": package()}
    for setting, state in (
        ("", PackageState.BLOCKED),
        ('ignored_tool_files = [".mytool/", "out/"]', PackageState.DONE),
    ):
        folder = tmp_path / str(state)
        folder.mkdir()
        project = make_project(folder, documents, run=setting)
        project.play(
            turn("implement", *writes("src/login.ts"), litter, {"result": "success"}), approves()
        )
        report = project.dispatch()
        assert report.state is state, report.reason
        assert not {".mytool/cache", "out/log"} & project.files_of(FEATURE)


@pytest.mark.demand("D10.b")
def test_a_hard_cap_blocks_the_package_before_an_agent_is_started(tmp_path: Path) -> None:
    project = two_agents(tmp_path, ANSWER)
    with open_project_store(project.project) as store:
        spent = JobRow(
            SLUG,
            "earlier",
            "WP09",
            "implement",
            1,
            "actor",
            project.project.now(),
            project.project.now(),
            "done",
            cost_usd=1e6,
        )
        store.append_unconditionally(
            SLUG, project.project.now(), [job_started_event(spent), job_ended_event(spent)]
        )
    report = project.dispatch()
    assert (report.state, report.reason.partition(":")[0]) == (
        PackageState.BLOCKED,
        "a limit is reached",
    )
    assert {job.outcome for job in project.jobs() if job.id != "earlier"} == {"blocked"}
    assert not (project.root / ".worktrees" / f"{SLUG}-WP01-agent0" / FIRST).exists()
