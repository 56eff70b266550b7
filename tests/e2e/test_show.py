"""`phasegate show`: everything that is kept of a package, a phase or a job, in one step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from phasegate.storage.lock import feature_lock
from support.dispatch_project import approves, implements, make_project, package
from support.feature_project import SLUG, FeatureProject, make_feature_project
from support.feature_run import SCENARIO, TYPE, make_feature_run
from support.feature_run import implements as stray_turn
from support.quick_dispatch import ECHO


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> FeatureProject:
    """A feature that was carried to its last gate."""
    project = make_feature_project(tmp_path_factory.mktemp("show"))
    project.start()
    project.drive()
    return project


@pytest.mark.demand("D14.a", "W4.a")
def test_a_package_is_shown_with_its_jobs_and_each_of_its_parts(carried: FeatureProject) -> None:
    whole = carried.command("show", "WP01")
    assert whole.code == 0
    builder, reviewer = (job for job in carried.jobs() if job.wp == "WP01")
    for words in ("WP01  DONE", f"job {builder.id[:8]}", f"job {reviewer.id[:8]}"):
        assert words in whole.stdout
    more = whole.stdout.partition("more: phasegate ")[2].partition("\n")[0]
    assert carried.command(*more.split()).code == 0, "it can be pasted"
    diff = carried.command("show", "WP01", "--diff").stdout
    assert "+++ b/bye.py" in diff
    assert "docs.md" not in diff
    assert carried.command("show", "WP01", "--prompt").stdout.rstrip("\n") == carried.prompt(
        reviewer.id
    ).rstrip("\n")
    assert "PASS" in carried.command("show", "WP01", "--answer").stdout
    assert "test" in carried.command("show", "WP01", "--evidence").stdout
    log = carried.project.jobs_folder / reviewer.id / "stdout.log"
    assert (
        carried.command("show", "WP01", "--log").stdout.strip()
        == log.read_text(encoding="utf-8").strip()
    )


@pytest.mark.demand("D14.a")
def test_a_job_is_shown_by_the_beginning_of_its_id_and_not_by_its_package(
    carried: FeatureProject,
) -> None:
    builder = next(job for job in carried.jobs() if (job.wp, job.phase) == ("WP01", "implement"))
    told = carried.command("show", builder.id[:8], "--json").json
    assert (told["job"]["job"], told["package"], told["phase"]) == (builder.id, None, None)
    part = carried.command("show", builder.id[:8], "--prompt", "--json").json
    assert (part["job"], part["text"]) == (builder.id, carried.prompt(builder.id))
    assert "+++ b/bye.py" in carried.command("show", builder.id, "--diff").stdout


@pytest.mark.demand("W4.a")
def test_a_phase_is_shown_by_key_number_or_name(carried: FeatureProject) -> None:
    keys = carried.feature().workflow.phases
    key = keys[0]
    number, _, name = key.partition("-")
    shown = [carried.command("show", wanted).stdout for wanted in (key, number, name)]
    assert shown[0] == shown[1] == shown[2]
    assert "round 1: passed" in shown[0]
    assert f"+++ b/kitty-specs/{SLUG}/" in carried.command("show", key, "--diff").stdout
    assert f"GATE-{number}, round 1: passed" in carried.command("show", key, "--evidence").stdout
    assert "<" in carried.command("show", key, "--prompt").stdout


@pytest.mark.demand("W4.a")
def test_what_is_not_there_is_refused_with_the_way_to_what_is(carried: FeatureProject) -> None:
    for wrong, words in (("WP77", "there is no WP77"), ("zzzz", "no trail begins with job 'zzzz'")):
        done = carried.command("show", wrong)
        assert (done.code, done.stdout) == (2, "")
        assert words in done.stderr
        assert "hint: " in done.stderr
    beside = carried.command("show", "WP01", "--feature", "002-nothing")
    assert beside.code == 2
    early = carried.command("resolve", "x")
    assert (early.code, f"  hint: phasegate complete --feature {SLUG}" in early.stderr) == (4, True)
    silent = carried.command("back", "requirements", " ")
    assert (silent.code, 'hint: phasegate back 01-requirements "why"' in silent.stderr) == (4, True)


def test_without_a_name_show_prints_the_grounds_of_the_merge(carried: FeatureProject) -> None:
    shown = carried.command("show").stdout
    assert shown.startswith("Merge 001-say-bye-to-people into main?")
    assert "bye.py  +2 -0  (WP01, FR-BYE-001)" in shown  # which requirement each change serves
    assert "before the work: 1 passed, 0 failed, 0 skipped" in shown
    in_short = shown.partition("In short:\n")[2].partition("\n\n")[0]
    assert "  tests: " in in_short, "the whole change, as its last review saw it"
    assert "before: 1 passed, 0 failed, 0 skipped" in in_short
    for fact in ("  changes: ", "; named by a test: 0", "  cost: ", "agent runs with prompts of "):
        assert fact in in_short
    assert "phasegate complete: " in shown
    for section in ("Changes (", "Packages:", "Checks:", "Requirements:", "Cost:", "You can:"):
        assert section in shown
    named = carried.command("show", "001").stdout
    assert named.partition("  request:")[2] == shown.partition("  request:")[2], "but for its age"
    pasted = shown.partition("the diff: phasegate ")[2].partition("\n")[0]
    for words in (pasted.split(), ["show", "--diff"]):
        diff = carried.command(*words).stdout
        assert "+++ b/bye.py" in diff
        assert ("+++ b/docs.md" in diff, "tasks.md" in diff) == (True, False)
    of_one_agent = carried.command("show", "--answer")
    assert (of_one_agent.code, "--answer needs a package" in of_one_agent.stderr) == (2, True)
    grounds = json.loads(carried.command("show", "--json").stdout)
    assert {"complete", "back", "cancel"} <= set(grounds["effects"])


@pytest.mark.demand("W4.a", "W6.f")
def test_a_refused_change_is_shown_and_once_allowed_the_run_continues_without_a_resolve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = make_feature_run(tmp_path)
    stray = stray_turn("write", "stray.py", "x = 1\n", package="WP01", round=1)
    stray["steps"].insert(0, {"print": "The plan forgot stray.py."})
    run.play(stray, *SCENARIO)
    refused = run.command("run", TYPE, "Say bye")
    assert refused.code == 1
    for told in (refused.stderr, run.command("status").stdout):
        assert "&& phasegate run" in told
        assert "  then: phasegate run\n" in f"{told}\n"
        assert "then: phasegate resolve" not in told
    jobs = len(run.jobs())
    assert run.command("run").code == 1  # the control: nothing was allowed, no agent is started
    assert len(run.jobs()) == jobs

    assert "+x = 1" in run.command("show", "WP01", "--diff").stdout
    grounds = run.command("show").stdout
    allow = "phasegate scope allow WP01 stray.py --reason 'the change needs it' --feature 001 && "
    claim = "The implementer says:\n  WP01: The plan forgot stray.py."
    for words in ("Refused changes:", "WP01  stray.py: added", "+x = 1", allow, "since: ", claim):
        assert words in grounds
    assert run.command("scope", "allow", "WP01", "stray.py", "--reason", "it belongs").code == 0
    done = run.command("run")
    assert done.code == 0, done.stderr
    assert "checked again: WP01: the refused path was allowed" in done.stderr

    due = run.command("show").stdout
    assert "  stray.py  +1 -0  (WP01, FR-" in due
    assert "Allowed outside of the file scope:\n  WP01: stray.py was added to the scope by" in due
    assert run.command("complete").code == 0
    merged = run.git("log", "-1", "--format=%B")
    assert "stray.py was added to the scope by" in merged
    assert "checked again" not in merged  # the user did not say that
    report = json.loads(run.command("report", "001-say-bye", "--json").stdout)
    allowed = [one["said"] for one in report["orders"] if one["order"] == "ScopeAllowed"]
    assert allowed == ["WP01: stray.py: it belongs"]


def test_a_feature_that_a_process_works_on_is_not_shown_as_stopped(tmp_path: Path) -> None:
    run = make_feature_run(tmp_path)
    assert run.command("start", TYPE, "Say bye").code == 0
    with feature_lock(run.project.location.locks_folder, "001-say-bye", "run", "now"):
        shown = run.command("show").stdout
    assert shown.startswith("001-say-bye is running in ")
    assert "  phasegate run: " not in shown
    assert " is stopped in " in run.command("show").stdout  # the control: nothing works on it


def test_a_package_that_nobody_began_has_no_prompt_yet(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    assert project.command("show", "WP01").code == 0
    early = project.command("show", "WP01", "--log")
    assert (early.code, early.stdout) == (2, "")
    assert "no agent has worked on WP01 yet" in early.stderr
    project.play(implements("src/login.ts"), approves())
    assert project.command("dispatch", "WP01").code == 0
    assert "+export const done" in project.command("show", "WP01", "--diff").stdout


# A program that speaks as Claude Code does, and waits in the middle until a file is there.
WAITING = """
import json, os, pathlib, sys, time
sys.stdin.read()
def say(**event): print(json.dumps(event), flush=True)
def part(**part): say(type="assistant", message={"content": [part]})
part(type="text", text="I write the form.")
part(type="tool_use", name="Write", input={"file_path": os.getcwd() + "/src/login.ts"})
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
part(type="tool_use", name="Bash", input={"command": "make test"})
say(type="user", message={"content": [{"type": "tool_result", "content": "1\\n2\\n3\\n4\\n5"}]})
used = {"input_tokens": 1500, "output_tokens": 20}
say(type="result", subtype="success", is_error=False, result="No result.", usage=used)
"""


def test_a_log_is_a_transcript_and_is_followed_while_the_agent_works(tmp_path: Path) -> None:
    program, go = tmp_path / "claude.py", tmp_path / "go"
    program.write_text(WAITING)
    command = json.dumps(["python3", str(program), str(go)])
    harness = f'harness = "claude_code"\ncommand = {command}\nmax_retries = 0\ntimeout_s = 60'
    project = make_project(
        tmp_path, {"WP01": package(test=ECHO)}, harness=harness, run='sandbox = "none"'
    )
    phasegate = [sys.executable, "-m", "phasegate"]
    with subprocess.Popen(
        [*phasegate, "dispatch", "WP01"], cwd=project.root, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stderr is not None
        assert any("implement by actor" in line for line in run.stderr)
        followed = [*phasegate, "show", "WP01", "--log", "--follow"]
        with subprocess.Popen(
            followed, cwd=project.root, stdout=subprocess.PIPE, text=True
        ) as show:
            assert show.stdout is not None
            live = [show.stdout.readline() for _ in range(2)]
            assert live == ["I write the form.\n", "> write src/login.ts\n"]
            go.touch()
            rest = show.stdout.read().splitlines()
        assert show.returncode == 0
        assert rest == [
            "> $ make test",
            "  | 1",
            "  | 2",
            "  | 3",
            "  | ... 2 more lines",
            "= 1.5k tokens read, 20 written",
        ]
        run.communicate(timeout=60)
    assert "> write src/login.ts" in project.command("show", project.jobs()[0].id, "--log").stdout


@pytest.mark.demand("W4.a")
def test_each_thing_of_a_whole_feature_is_reached_in_one_step(tmp_path: Path) -> None:
    project = make_feature_project(tmp_path)
    project.start()
    project.drive(merge=True)
    assert "  WP01  round 1  implement" in project.call("show", "06").stdout
    parts = ("--diff", "--prompt", "--log", "--answer", "--evidence")
    for subject in ("WP01", "01", "06", "08", "archive"):
        for part in parts:
            done = project.call("show", subject, part)
            is_kept = (subject, part) != ("archive", "--evidence")  # it is behind all gates
            assert (done.code == 0, bool(done.stdout)) == (is_kept, is_kept), (subject, part, done)
    for job in project.jobs():
        for part in ("--prompt", "--log", "--answer"):
            assert project.call("show", job.id[:8], part).code == 0
    archivist = next(job for job in project.jobs() if job.phase == "archive")
    reviewer = next(job for job in project.jobs() if job.phase == "review" and not job.wp)
    assert (
        project.call("show", "archive", "--prompt").stdout.strip()
        == project.prompt(archivist.id).strip()
    )
    assert (
        project.call("show", "08", "--prompt").stdout.strip() == project.prompt(reviewer.id).strip()
    )
    assert "CHANGELOG.md" in project.call("show", "archive", "--diff").stdout


def test_following_anything_but_a_log_is_refused(carried: FeatureProject) -> None:
    for more in (("--prompt",), (), ("--log", "--json")):
        done = carried.command("show", "WP01", "--follow", *more)
        assert done.code == 2
        assert "--follow requires --log" in done.stderr


@pytest.mark.parametrize(("rows", "is_paged"), [(10, True), (500, False)])
def test_a_text_longer_than_the_terminal_has_a_pager(
    carried: FeatureProject, rows: int, is_paged: bool
) -> None:
    terminal = pexpect.spawn(
        sys.executable,
        ["-m", "phasegate", "show", "--diff"],
        cwd=str(carried.root),
        env={**os.environ, "PAGER": "sed s/^/paged:/", "TERM": "xterm"},
        dimensions=(rows, 100),
        timeout=60,
    )
    terminal.expect(pexpect.EOF)
    terminal.close()
    shown = terminal.before.decode()
    assert ("b/bye.py" in shown, "paged:" in shown) == (True, is_paged)
