"""A work package carried out by each of the real programs, from `phasegate dispatch` to the merge (D1-D13)."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from phasegate.config.acp_registry import SHIPPED_REGISTRY
from phasegate.core.machine.rate_limit_wait import rate_limit_backoff_s
from phasegate.core.plan.work_package import PackageState
from phasegate.engine.drive.run_package import dispatch_package
from phasegate.engine.journal.package import find_package
from phasegate.engine.project.local_services import SystemClock
from phasegate.engine.project.project import open_project_store
from support.dispatch_project import (
    FEATURE,
    SLUG,
    DispatchProject,
    approves,
    implements,
    make_project,
)
from support.real_agents import KEY, MODEL, SUBJECTS, Subject, opencode_settings, processes_tagged
from support.standin import Fail, Say, Script, Shell, Standin, Write
from support.trail_story import expect_stories, trails_of

FORM = "src/login.ts"
TEXT = "export const login = () => 'é';\n"
COMMIT = Shell(f"git add {FORM} && git commit -q -m 'WP01: Write the login form'")


def result(prompt: str) -> str:
    """The JSON result of the job that the prompt names."""
    job = re.search(r"- job_id: (\S+)", prompt)
    assert job is not None, prompt[-2000:]
    fields = {
        "job_id": job[1],
        "wp_id": "WP01",
        "success": True,
        "status": "completed",
        "summary": "Done",
    }
    return f"It is done.\n\n```json\n{json.dumps(fields)}\n```\n"


REVIEW = Script(
    (Say("I have read the change.\n\n<review>PASS</review>\n"),), about="Review work package WP01"
)


def project_of(
    subject: Subject, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> DispatchProject:
    """A repository whose only agent is the real program; key and address are in the person's environment."""
    configured = subject.configured(url)
    for name, value in configured.env.items():
        monkeypatch.setenv(name, value)
    lines = [f'harness = "{subject.kind}"', f"env = {json.dumps([*configured.env])}"]
    if configured.command:
        lines.append(f"command = {json.dumps(configured.command)}")
    rounds = "max_review_cycles = 1"  # what a second one brings does not depend on the program
    return make_project(folder, harness="\n".join(lines), agent="timeout_s = 300", run=rounds)


@pytest.mark.demand("D3.a", "D8.a", "D13.j", "D13.k")
def test_a_work_package_is_implemented_committed_validated_reviewed_and_merged(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Standin(
        REVIEW,
        Script((Write(FORM, TEXT), COMMIT, Say(result)), about="Implement work package WP01"),
    ) as model:
        project = project_of(subject, tmp_path, model.url, monkeypatch)
        done = project.program("dispatch", "WP01", timeout_s=400)
    assert done.code == 0, done.stdout + done.stderr
    assert project.rows()["WP01"].state == PackageState.DONE
    assert project.git("show", f"{FEATURE}:{FORM}") == TEXT.strip()
    assert project.files_of(FEATURE) - project.files_of("main") == {FORM}
    assert project.audit_problems() == []
    assert project.worktrees() == set()
    assert "WP01: Write the login form" in project.git("log", "--format=%s", f"main..{FEATURE}")
    trails = trails_of(project.root)
    expect_stories(trails, project.root, "main", SLUG, FEATURE)
    actors = {entry["actor"] for entries in trails.values() for entry in entries}
    assert actors == {"phasegate", f"agent:{subject.kind.replace('_', '-')}"}
    for job in project.jobs():
        prompt = project.prompt(job.id).strip()
        assert any(prompt in text for seen in model.seen for text in seen.strings), (
            f"{job} was not told its prompt"
        )
        assert processes_tagged(job.id) == []


def test_a_refused_key_blocks_the_package_and_says_what_to_do(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Standin(Fail(401)) as model:
        project = project_of(subject, tmp_path, model.url, monkeypatch)
        done = project.program("dispatch", "WP01", timeout_s=400)
    row = project.rows()["WP01"]
    assert done.code == 1, done.stdout + done.stderr
    assert row.state == PackageState.BLOCKED
    assert "401" in row.reason
    assert row.remediation
    assert len(project.jobs()) == 1  # a refused key is not tried again
    assert FORM not in project.files_of(FEATURE)


def test_an_agent_that_says_it_is_done_and_did_nothing_is_not_believed(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Standin(REVIEW, Script((Say(result),), about="Implement work package WP01")) as model:
        project = project_of(subject, tmp_path, model.url, monkeypatch)
        done = project.program("dispatch", "WP01", timeout_s=400)
    assert done.code == 1, done.stdout + done.stderr
    assert project.rows()["WP01"].state == PackageState.BLOCKED
    assert FORM not in project.files_of(FEATURE)


@pytest.mark.demand("D10.a", "P7.b")
def test_at_a_limit_of_its_model_the_fallback_does_the_work_at_once(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for impatient in ("codex", "opencode"):  # both would wait for a while before they are stopped
        monkeypatch.setattr(f"phasegate.agents.programs.{impatient}.MAX_RETRY_WAIT_S", 3.0)
    with Standin(Fail(429)) as model:
        configured = subject.configured(model.url)
        for name, value in configured.env.items():
            monkeypatch.setenv(name, value)
        command = f"command = {json.dumps(configured.command)}\n" if configured.command else ""
        limited = f'[agents.limited]\nharness = "{subject.kind}"\nenv = {json.dumps([*configured.env])}\n{command}'
        roles = '[roles]\nimplement = "limited"\nreview = "actor"\n'
        project = make_project(tmp_path, agent=f'{limited}fallback = "actor"\n{roles}')
        project.play(implements(FORM), approves())
        assert project.dispatch().state is PackageState.DONE
    jobs = [(job.agent, job.outcome) for job in project.jobs() if job.phase == "implement"]
    assert jobs == [("limited", "rate limited"), ("actor", "done")]
    told = project.command("status").stdout
    assert re.search(r"limited is rate-limited until 20\d\d-", told), told


class LeapingClock(SystemClock):
    """It stands, an hour ahead of this machine's, until it is set on: no load can make a wait longer or shorter."""

    def __init__(self) -> None:
        self.now_s = int(time.time()) + 3600.0

    def time_s(self) -> float:
        return self.now_s


@pytest.mark.demand("D10.a")
@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("kind", ["claude_code", "codex"])  # the others hold too, and take minutes
def test_at_a_limit_without_a_fallback_it_rests_longer_each_time_says_until_when_and_does_the_work_in_the_end(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phasegate.agents.programs.codex.MAX_RETRY_WAIT_S", 3.0)
    limit, work = Script((Fail(429),)), Script((Write(FORM, TEXT), COMMIT, Say(result)))
    clock, shown = LeapingClock(), list[float]()
    began_s = clock.now_s
    with Standin(REVIEW, limit, work) as model:
        made = project_of(SUBJECTS[kind], tmp_path, model.url, monkeypatch)

        def told(line: str) -> None:
            """At each rest a person looks at `status`, and then it is over; with the third the limit is lifted."""
            if "actor is rate-limited until" in line:
                found = re.search(
                    r"actor is rate-limited until (\S+)\n",
                    made.command("status").stdout,
                )
                assert found is not None
                clock.now_s = datetime.fromisoformat(found[1]).timestamp()
                shown.append(clock.now_s)
                if len(shown) == 3:
                    model.scripts.remove(limit)

        project = made.project._replace(clock=clock)
        with open_project_store(project) as store:
            dispatch_package(
                project, store, find_package(store, "WP01", SLUG), agent=None, report_line=told
            )
    assert made.rows()["WP01"].state == PackageState.DONE
    jobs = made.jobs()
    assert [job.outcome for job in jobs] == [*["rate limited"] * 3, "done", "done"]
    assert [job.retry_at_s for job in jobs[:3]] == shown
    assert [until_s - before_s for before_s, until_s in pairwise([began_s, *shown])] == [
        rate_limit_backoff_s(n) for n in range(3)
    ]
    assert rate_limit_backoff_s(0) < rate_limit_backoff_s(1) < rate_limit_backoff_s(2)
    assert made.git("show", f"{FEATURE}:{FORM}") == TEXT.strip()
    assert made.audit_problems() == []


def test_a_contest_of_two_programs_takes_the_one_that_passes(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = Script((Write(FORM, "// TODO\n"), Say(result)), about="Implement work package WP01")
    passes = Script((Write(FORM, TEXT), Say(result)), about="Implement work package WP01")
    with Standin(fails) as claudes, Standin(REVIEW, passes) as codexs:
        tables = {}
        for name, kind, model in (("claude", "claude_code", claudes), ("codex", "codex", codexs)):
            configured = SUBJECTS[kind].configured(model.url)
            for variable, value in configured.env.items():
                monkeypatch.setenv(variable, value)
            command = f"command = {json.dumps(configured.command)}\n" if configured.command else ""
            tables[name] = (
                f'harness = "{kind}"\nenv = {json.dumps([*configured.env])}\ntimeout_s = 300\n{command}'
            )
        others = "".join(f"[agents.{name}]\n{table}" for name, table in tables.items())
        roles = '[roles]\nimplement = "claude"\nreview = "codex"\n'
        project = make_project(
            tmp_path, agent=f"{others}{roles}", run='competing_agents = ["claude", "codex"]'
        )
        done = project.program("dispatch", "WP01", timeout_s=400)
    assert done.code == 0, done.stdout + done.stderr
    assert project.rows()["WP01"].state == PackageState.DONE
    assert project.git("show", f"{FEATURE}:{FORM}") == TEXT.strip()
    first, second = project.command("show", "WP01", "--json").json["package"]["attempts"]
    assert (first["agent"], first["outcome"], first["taken"]) == ("claude", "failed: test", False)
    assert (second["agent"], second["outcome"], second["taken"]) == (
        "codex",
        "passed the manifest",
        True,
    )
    assert project.git("show", f"{first['ref']}:{FORM}") == "// TODO"
    assert first["tokens"] > 0
    assert second["tokens"] > 0
    assert first["cost_usd"] > 0  # the other one tells no cost
    assert project.audit_problems() == []


def _kilo(url: str) -> dict[str, str]:
    return {"KILO_CONFIG_CONTENT": opencode_settings(url)}


def _kimi(url: str) -> dict[str, str]:
    own = {
        "API_KEY": KEY,
        "BASE_URL": f"{url}/v1",
        "NAME": MODEL,
        "PROVIDER_TYPE": "openai",
        "MAX_CONTEXT_SIZE": "200000",
    }
    return {f"KIMI_MODEL_{name}": value for name, value in own.items()}


def _vibe(url: str) -> dict[str, str]:
    provider = {"name": "standin", "api_base": f"{url}/v1", "api_key_env_var": "MISTRAL_API_KEY"}
    models = [{"name": MODEL, "provider": "standin", "alias": MODEL}]
    lists = {"VIBE_PROVIDERS": json.dumps([provider]), "VIBE_MODELS": json.dumps(models)}
    return {"MISTRAL_API_KEY": KEY, **lists, "VIBE_ACTIVE_MODEL": MODEL}


class Listed(NamedTuple):
    """An agent of the shipped registry: its program, where npm puts it, and what leads it to the stand-in."""

    program: str
    place: str
    configured: Callable[[str], dict[str, str]]


LISTED = {
    "kilo": Listed("kilo", "@kilocode/cli-linux-x64/bin", _kilo),  # found by npm only
    "kimi": Listed("kimi", ".bin", _kimi),
    "mistral-vibe": Listed("vibe-acp", ".bin", _vibe),
}


@pytest.fixture(params=LISTED)
def listed(request: pytest.FixtureRequest, programs: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    found = LISTED[request.param]
    monkeypatch.setenv("PATH", f"{programs.parent / found.place}:{os.environ['PATH']}")
    if not shutil.which(found.program):
        pytest.skip(
            f"{found.program} is not installed: it comes from another registry, or for other machines only"
        )
    return str(request.param)


def newly_listed(name: str, folder: Path) -> str:
    """A registry of the person's own, in which the program has an entry of another name. That name."""
    (entry,) = [
        one for one in json.loads(SHIPPED_REGISTRY.read_text())["agents"] if one["id"] == name
    ]
    file = folder / "phasegate/acp-registry.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"version": "1.0.0", "agents": [{**entry, "id": f"new-{name}"}]}))
    return f"new-{name}"


def test_a_package_is_done_by_an_agent_of_our_registry_and_reviewed_by_one_of_the_persons(
    listed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    newcomer = newly_listed(listed, tmp_path / "config")
    with Standin(
        REVIEW, Script((Write(FORM, TEXT), Say(result)), about="Implement work package WP01")
    ) as model:
        for variable, value in LISTED[listed].configured(model.url).items():
            monkeypatch.setenv(variable, value)
        tables = "".join(
            f'[agents.{name}]\nharness = "acp"\ntimeout_s = 200\n' for name in (listed, newcomer)
        )
        roles = f'[roles]\nimplement = "{listed}"\nreview = "{newcomer}"\n'
        project = make_project(tmp_path, agent=f"{tables}{roles}", run="max_review_cycles = 1")
        done = project.program("dispatch", "WP01", timeout_s=300)
    assert done.code == 0, done.stdout + done.stderr
    assert project.rows()["WP01"].state == PackageState.DONE
    assert project.git("show", f"{FEATURE}:{FORM}") == TEXT.strip()
    assert [(job.agent, job.outcome) for job in project.jobs()] == [
        (listed, "done"),
        (newcomer, "done"),
    ]
    assert all(processes_tagged(job.id) == [] for job in project.jobs())


@pytest.mark.demand("D10.a")
def test_an_agent_of_the_registry_at_a_limit_is_one_at_a_limit(
    listed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Standin(Fail(429, retry_after_s=3600)) as model:
        for variable, value in LISTED[listed].configured(model.url).items():
            monkeypatch.setenv(variable, value)
        limited = (
            f'[agents.{listed}]\nharness = "acp"\nfirst_output_timeout_s = 25\nfallback = "actor"\n'
        )
        roles = f'[roles]\nimplement = "{listed}"\nreview = "actor"\n'
        project = make_project(tmp_path, agent=f"{limited}{roles}")
        project.play(implements(FORM), approves())
        assert project.dispatch().state is PackageState.DONE
    jobs = [(job.agent, job.outcome) for job in project.jobs() if job.phase == "implement"]
    assert jobs in (
        [(listed, "rate limited"), ("actor", "done")],
        [(listed, "silent"), ("actor", "done")],
    )
