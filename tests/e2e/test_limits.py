"""What agents use is added up, hard caps stop before the next start, and limits of a provider are waited for (D10)."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from phasegate.core.machine.rate_limit_wait import RATE_LIMIT_BACKOFF_BASE_S
from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow.spending import (
    Spending,
    SpendingCaps,
    find_reached_cap,
    format_spending,
)
from phasegate.errors import ConfigError
from phasegate.storage.reader import open_store_reader
from support import fake_claude
from support.dispatch_project import FEATURE, SLUG, DispatchProject, make_project, package
from support.feature_run import make_feature_run
from support.quick_dispatch import COUNTED, ECHO

FORM = "src/login.ts"
OK: dict[str, Any] = {"cost": 0.5}
A_WEEK_S = 7 * 86_400


def project_of(
    folder: Path, *turns: dict[str, Any], limits: str = "", more: str = ""
) -> DispatchProject:
    """A package whose agent is a fake program, which keeps its count beside itself: so there is no sandbox."""
    room = folder / "claude"
    room.mkdir()
    shutil.copy(fake_claude.__file__, room / "claude.py")
    (room / "turns.json").write_text(json.dumps(turns))
    program = json.dumps(["python3", str(room / "claude.py"), "actor"])
    harness = f'harness = "claude_code"\ncommand = {program}\nmax_retries = 0'
    tables = f"[limits]\n{limits}\n{more}".replace("PROGRAM", str(room / "claude.py"))
    return make_project(
        folder,
        {"WP01": package(test=ECHO)},
        harness=harness,
        run=f'sandbox = "none"\n{tables}',
        agent=fallback(more),
    )


def fallback(more: str) -> str:
    return 'fallback = "second"' if "[agents.second]" in more else ""


SECOND = '[agents.second]\nharness = "claude_code"\ncommand = ["python3", "PROGRAM", "second"]\n'


def calls(project: DispatchProject) -> list[dict[str, Any]]:
    path = project.root.parent / "claude/calls.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def set_limit(project: DispatchProject, before: str, after: str) -> None:
    file = project.root / "phasegate.toml"
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))
    project.git("commit", "-qam", "Raise a limit")


# --- what one job may use

HOARDS = """python3 -c 'import time; hoard = b"x" * (160 << 20); time.sleep(25)'"""
# Its first thread ends: to who looks at the process it is dead then, and holds nothing.
HIDES = """python3 -c '
import ctypes, threading, time
hoard = b"x" * (160 << 20)
threading.Thread(target=time.sleep, args=(25,)).start()
ctypes.CDLL(None).pthread_exit(None)'"""


@pytest.mark.skipif(sys.platform != "linux", reason="a job is measured in /proc")
@pytest.mark.parametrize("hoarder", ["agent", "agent that hides it", "check"])
def test_a_job_that_takes_too_much_memory_is_ended_and_the_reason_names_the_limit(
    tmp_path: Path, hoarder: str
) -> None:
    """The control is the same hoard without a limit, by `test_a_job_that_takes_too_much_in_all_is_ended`."""
    agent = tmp_path / "agent.sh"
    told = {
        "agent": HOARDS,
        "agent that hides it": HIDES,
        "check": COUNTED.replace("RUNS", "/dev/null"),
    }
    agent.write_text(f"{told[hoarder]}\n")
    harness = f'harness = "command"\ncommand = ["/bin/sh", "{agent}"]\nmax_retries = 0'
    checks = ECHO if hoarder != "check" else f"test ! -e {FORM} || {HOARDS}"
    run = 'sandbox = "none"\nmax_review_cycles = 1\n[limits]\njob_memory_mib = 96'
    project = make_project(tmp_path, {"WP01": package(test=checks)}, harness=harness, run=run)
    done = project.command("dispatch", "WP01")
    assert done.code == 1
    assert "its memory limit of 96 MiB" in done.stdout
    if hoarder != "check":
        assert "job_memory_mib" in project.rows()["WP01"].remediation
    assert project.audit_problems() == []


# --- hard caps


@pytest.mark.parametrize(
    ("limits", "raised", "used"),
    [
        ("run_cost_usd = 0.4", "run_cost_usd = 9", "0.50 of 0.4 USD"),
        ("total_cost_usd = 0.4", "total_cost_usd = 9", "0.50 of 0.4 USD"),
        ("run_tokens = 123", "run_tokens = 999", "123 of 123 tokens"),
    ],
    ids=["cost of a run", "cost of all", "tokens of a run"],
)
@pytest.mark.demand("D10.b", "D10.c")
def test_a_reached_cap_stops_before_the_next_start_and_a_raised_one_lets_it_go_on(
    tmp_path: Path, limits: str, raised: str, used: str
) -> None:
    project = project_of(tmp_path, OK, limits=limits)
    report = project.dispatch()
    assert [call["phase"] for call in calls(project)] == [
        "implement"
    ]  # the reviewer was not started
    assert report.state is PackageState.BLOCKED
    assert used in report.reason
    row = project.rows()["WP01"]
    assert row.state == PackageState.BLOCKED
    assert limits.split()[0] in row.remediation
    refused = project.jobs()[-1]
    assert (refused.phase, refused.outcome, refused.tokens) == ("review", "blocked", 0)
    assert "not started" in project.trail(refused.id)[0]["text"]
    assert project.audit_problems() == []
    set_limit(project, limits, raised)
    assert project.dispatch().state is PackageState.DONE
    assert FORM in project.files_of(FEATURE)
    assert project.audit_problems() == []


@pytest.mark.demand("D10.b", "D10.c")
def test_a_cap_holds_over_all_attempts_at_a_package_and_each_is_on_record_with_its_cost(
    tmp_path: Path,
) -> None:
    project = project_of(tmp_path, OK, limits="run_cost_usd = 0.9")
    set_limit(project, "max_retries = 0", "max_retries = 0\nattempts_per_package = 2")
    report = project.dispatch()
    assert report.state is PackageState.BLOCKED
    assert "1.00 of 0.9 USD" in report.reason
    assert [call["phase"] for call in calls(project)] == ["implement", "implement"], (
        "nobody was paid to compare them"
    )
    set_limit(project, "run_cost_usd = 0.9", "run_cost_usd = 9")
    assert project.dispatch().state is PackageState.DONE
    assert [call["phase"] for call in calls(project)][2:] == ["review", "review"], (
        "they are compared, not made again"
    )
    attempts = project.command("show", "WP01", "--json").json["package"]["attempts"]
    assert [(one["number"], one["cost_usd"], one["tokens"]) for one in attempts] == [
        (1, 0.5, 123),
        (2, 0.5, 123),
    ]
    assert sorted(bool(one["ref"]) for one in attempts) == [False, True]


@pytest.mark.demand("D10.b")
def test_a_cap_that_stays_reached_stops_again_without_a_start(tmp_path: Path) -> None:
    project = project_of(tmp_path, OK, limits="run_cost_usd = 0.4")
    for _ in range(2):
        assert project.dispatch().state is PackageState.BLOCKED
    assert len(calls(project)) == 1


def test_what_another_feature_used_counts_for_all_and_not_for_this_one() -> None:
    caps = SpendingCaps(1.0, 5.0, 1000)
    assert find_reached_cap(caps, Spending(10, 0.5), Spending(10_000, 4.9)) is None
    found = find_reached_cap(caps, Spending(10, 0.5), Spending(10_000, 5.0))
    assert found is not None
    assert found[1] == "total_cost_usd"


# --- what was used


@pytest.mark.demand("D10.c")
def test_usage_is_added_up_for_each_job_package_feature_and_in_all(tmp_path: Path) -> None:
    project = project_of(tmp_path, {"cost": 1.0, "input": 40_000, "output": 4_900}, {"cost": 0.23})
    assert project.dispatch().state is PackageState.DONE
    assert [(job.tokens, job.cost_usd) for job in project.jobs()] == [(44_900, 1.0), (123, 0.23)]
    reader = open_store_reader(project.project.location)
    assert reader is not None
    with reader:
        assert reader.total_spent(SLUG) == reader.total_spent() == Spending(45_023, 1.23)
        assert reader.total_spent("another") == Spending()
    line = "spent: 1.23 USD, 45 023 tokens\n"
    assert line in project.command("status").stdout
    assert line in project.command("status", "WP01").stdout
    used = {"tokens": 45_023, "cost_usd": 1.23}
    assert project.command("status", "--json").json["spent"] == {"feature": used, "all": used}
    assert project.command("status", "WP01", "--json").json[0]["spent"] == used


def test_spending_is_shown_in_plain_words() -> None:
    assert format_spending(Spending(45_000, 1.234)) == "1.23 USD, 45 000 tokens"
    assert format_spending(Spending(7, 0.0)) == "0.00 USD, 7 tokens"
    assert format_spending(Spending(7, 0.0013)) == "0.0013 USD, 7 tokens"


# --- limits of a provider


@pytest.mark.demand("D10.a")
def test_a_limit_is_waited_for_and_uses_up_no_retry(tmp_path: Path) -> None:
    project = project_of(
        tmp_path, {"limit_s": 2}, {"limit_s": 1}, OK
    )  # and there are no retries at all
    said: list[str] = []
    assert project.dispatch(said=said).state is PackageState.DONE
    assert [job.outcome for job in project.jobs()] == [
        "rate limited",
        "rate limited",
        "done",
        "done",
    ]
    first, second, *_ = calls(project)
    assert second["at_s"] - first["at_s"] >= 2
    assert any("is rate-limited until" in line and "resumes automatically" in line for line in said)
    assert project.audit_problems() == []


@pytest.mark.parametrize("limit_s", [-5, None], ids=["over already", "not said"])
@pytest.mark.demand("D10.a", "P7.b")
def test_at_a_limit_without_a_time_the_fallback_steps_in_at_once_and_status_says_until_when(
    tmp_path: Path, limit_s: int | None
) -> None:
    """Otherwise a wrong clock would have the agent started again and again without a pause."""
    project = project_of(tmp_path, {"limit_s": limit_s, "only": "actor"}, more=SECOND)
    began_s = time.time()
    assert project.dispatch().state is PackageState.DONE
    assert [(job.agent, job.outcome) for job in project.jobs()][:2] == [
        ("actor", "rate limited"),
        ("second", "done"),
    ]
    assert project.jobs()[0].retry_at_s >= began_s + RATE_LIMIT_BACKOFF_BASE_S
    (resting,) = project.command("status", "--json").json["resting"]
    assert resting["agent"] == "actor"
    assert f"actor is rate-limited until {resting['until']}\n" in project.command("status").stdout


@pytest.mark.demand("D10.b")
def test_a_limit_that_is_lifted_too_late_blocks_and_names_the_moment(tmp_path: Path) -> None:
    project = project_of(tmp_path, {"limit_s": A_WEEK_S}, OK)
    report = project.dispatch()
    assert report.state is PackageState.BLOCKED
    assert "rate-limited until 20" in report.reason
    assert "fallback" in project.rows()["WP01"].remediation
    assert len(calls(project)) == 1
    assert (
        project.dispatch().state is PackageState.DONE
    )  # a person who tries again is not kept from it


@pytest.mark.parametrize("limit_s", [3_600, A_WEEK_S], ids=["soon", "late"])
@pytest.mark.demand("D10.a", "P7.b")
def test_the_fallback_steps_in_while_an_agent_rests(tmp_path: Path, limit_s: int) -> None:
    project = project_of(tmp_path, {"limit_s": limit_s, "only": "actor"}, more=SECOND)
    assert project.dispatch().state is PackageState.DONE
    assert [(job.agent, job.outcome) for job in project.jobs() if job.phase == "implement"] == [
        ("actor", "rate limited"),
        ("second", "done"),
    ]
    assert [call["as"] for call in calls(project)][:2] == ["actor", "second"]


def test_where_all_rest_the_one_that_rests_least_goes_on(tmp_path: Path) -> None:
    turns = ({"limit_s": 3_600}, {"limit_s": 2}, OK)
    project = project_of(tmp_path, *turns, more=SECOND)
    assert project.dispatch().state is PackageState.DONE
    assert [job.agent for job in project.jobs()][:3] == ["actor", "second", "second"]


def test_a_fallback_that_also_rests_for_long_does_not_wait_in_silence(tmp_path: Path) -> None:
    project = project_of(tmp_path, {"limit_s": A_WEEK_S}, more=SECOND)
    report = project.dispatch()
    assert report.state is PackageState.BLOCKED
    assert "rate-limited until 20" in report.reason
    assert [call["as"] for call in calls(project)] == ["actor", "second"]


@pytest.mark.parametrize("name", ["nobody", "actor"])
def test_a_fallback_that_is_no_other_agent_is_an_error_of_the_configuration(
    tmp_path: Path, name: str
) -> None:
    project = project_of(tmp_path, OK)
    file = project.root / "phasegate.toml"
    file.write_text(file.read_text().replace("[run]", f'fallback = "{name}"\n[run]'))
    with pytest.raises(ConfigError, match="fallback"):
        _ = project.project
    done = project.command("dispatch", "WP01")
    assert (done.code, "is not another configured agent" in done.stderr) == (2, True)


# --- in a workflow


@pytest.mark.demand("D10.a", "D10.b", "W4.b")
def test_a_workflow_waits_for_a_limit_stops_at_a_cap_and_goes_on_when_it_is_raised(
    tmp_path: Path,
) -> None:
    room = tmp_path / "claude"
    room.mkdir()
    shutil.copy(fake_claude.__file__, room / "claude.py")
    (room / "turns.json").write_text(json.dumps([{"limit_s": 2}, OK]))
    run = make_feature_run(tmp_path)
    command = json.dumps(["python3", str(room / "claude.py"), "critic"])
    critic = f'[agents.critic]\nharness = "claude_code"\ncommand = {command}\nmax_retries = 0\n'
    file = run.root / "phasegate.toml"
    roles = '[roles]\nplan = "actor"\nchallenge = "critic"\nimplement = "actor"\nreview = "actor"\narchive = "actor"\n'
    file.write_text(
        f'{file.read_text()}{critic}{roles}[run]\nsandbox = "none"\n[limits]\nrun_cost_usd = 0.4\n'
    )
    run.git("commit", "-qam", "A critic that costs something")
    stopped = run.command("run", "quick", "Say bye")
    assert stopped.code == 1, stopped.stdout + stopped.stderr
    assert "run_cost_usd" in stopped.stdout + stopped.stderr
    assert "rate-limited until 20" in stopped.stdout + stopped.stderr
    assert [job.outcome for job in run.jobs() if job.agent == "critic"] == ["rate limited", "done"]
    assert not any(job.outcome == "done" for job in run.jobs() if job.phase == "implement")
    assert "spent: 0.50 USD, 123 tokens" in run.command("status").stdout
    file.write_text(file.read_text().replace("run_cost_usd = 0.4", "run_cost_usd = 9"))
    run.git("commit", "-qam", "Raise it")
    assert run.command("resolve", "the limit is raised").code == 0
    done = run.command("run", "--merge")
    assert done.code == 0, done.stdout + done.stderr
    assert "bye.py" in run.git("ls-tree", "--name-only", "main")
