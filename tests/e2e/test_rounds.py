"""What each round, reviewer and person learns of what happened, seen in whole runs."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow.workflow_phases import WORKFLOWS
from support.dispatch_project import (
    FILES,
    SLUG,
    TEST_COMMAND,
    approves,
    implements,
    make_project,
    package,
    turn,
)
from support.feature_project import (
    ARCHIVES,
    BUILDS,
    DESCRIPTION,
    FOLDER,
    MENDS,
    PASS,
    SPEC,
    TASKS,
    FeatureProject,
    accepts,
    document,
    make_feature_project,
    plans,
)
from support.sandboxed import eventually

CHECKED = """\
import pathlib
import unittest


class Sources(unittest.TestCase):
    def test_no_source_says_todo(self):
        for path in pathlib.Path("src").rglob("*.ts"):
            self.assertNotIn("TODO", path.read_text(encoding="utf-8"))

    def test_it_always_passes(self):
        pass

    @unittest.skip("later")
    def test_later(self):
        pass
"""


@pytest.mark.demand("D8.a", "D8.b", "M2.b", "M2.c")
def test_a_round_names_failed_tests_and_a_deliverable_that_was_not_changed(tmp_path: Path) -> None:
    files = ("src/login.ts", "src/services/auth.ts")
    project = make_project(
        tmp_path,
        {"WP01": package(files=files)},
        files={**FILES, "check_sources.py": CHECKED},
    )
    wrong = turn(
        "implement",
        {"write": "src/login.ts", "content": "TODO\n"},
        {"commit": "{wp_id}: Begin"},
        {"result": "success"},
        round=1,
    )
    project.play(wrong, implements(*files), approves())
    assert project.dispatch().state == PackageState.DONE

    second = next(job for job in project.jobs() if job.phase == "implement" and job.round == 2)
    told = project.prompt(second.id)
    assert "deliverables: not changed: src/services/auth.ts" in told
    assert "test: 1 of 2 tests failed" in told
    assert "What to do: Run `python3 -m unittest -q check_sources` and fix" in told
    # The remedy names the command already
    assert "Command: `" not in told
    assert "- test_no_source_says_todo (check_sources.Sources.test_no_source_says_todo)" in told
    assert "AssertionError: 'TODO' unexpectedly found in" in told
    assert "Ran 3 tests" not in told

    review = project.prompt(project.jobs()[-1].id)
    merged = project.git("rev-parse", f"feat/{SLUG}^2")
    assert f"Commit {merged}, compared with {project.git('rev-parse', 'main')}" in review
    assert "2 passed, 0 failed, 1 skipped; before the work: 2 passed, 0 failed, 1 skipped" in review
    assert "OK (skipped=1)" in review
    assert "ran `python3 -m unittest -q check_sources`, exit status 0" in review
    assert "whole output: phasegate-output/test.log" in review
    assert "The implementer's summary of round 1: Done as scripted" in review


@pytest.mark.demand("D8.a", "P6.c")
def test_a_deliverable_may_stay_as_it_is_where_the_package_says_so(tmp_path: Path) -> None:
    files = ("src/login.ts", "src/services/auth.ts")
    report = "printf 'SF:src/login.ts\\nDA:1,1\\nend_of_record\\n' > lcov.info"
    document = package(
        files=files,
        may_stay_unchanged=["src/services/auth.ts"],
        test=f"{TEST_COMMAND} && {report}",
    )
    project = make_project(tmp_path, {"WP01": document})
    looks = {"run": ["sh", "-c", "cat phasegate-output/test.log"]}
    thinks = {"print": "<thought>hidden\nreasoning</thought>\nI looked."}
    project.play(implements("src/login.ts"), turn("review", looks, thinks, {"verdict": "PASS"}))
    assert project.dispatch().state == PackageState.DONE
    review = project.jobs()[-1]
    prompt = project.prompt(review.id)
    assert "not changed, which the plan permits: src/services/auth.ts" in prompt
    assert "changed lines: passed - 1 of 1 changed lines are covered (lcov.info)" in prompt
    shown = project.command("show", review.id, "--log").stdout
    assert "I looked." in shown
    assert "hidden" not in shown
    assert "reasoning" not in shown
    output = project.project.jobs_folder / review.id
    assert any("Ran 1 test" in path.read_text(errors="replace") for path in output.glob("*.log"))


@pytest.mark.demand("D2.c", "D8.a")
def test_frozen_files_and_new_dependencies_block_a_package_until_a_person_permits_them(
    tmp_path: Path,
) -> None:
    files = ("src/login.ts", "package.json", "tsconfig.json")
    document = package(
        files=files, frozen_files=["tsconfig.json"], forbidden_dependencies=["left-pad"]
    )
    base = {**FILES, "package.json": '{"name": "x"}\n', "tsconfig.json": "{}\n"}
    project = make_project(tmp_path, {"WP01": document}, files=base)
    breaks = turn(
        "implement",
        {"write": "src/login.ts", "content": "export {};\n"},
        {"write": "package.json", "content": '{"dependencies": {"left-pad": "1", "zod": "3"}}\n'},
        {"write": "tsconfig.json", "content": '{"strict": false}\n'},
        {"commit": "{wp_id}: Add"},
        {"result": "success"},
        round=1,
    )
    touch = turn(
        "implement",
        {"append": "src/login.ts", "content": "// reviewed\n"},
        {"commit": "{wp_id}: Say so"},
        {"result": "success"},
    )
    project.play(breaks, touch, approves())
    report = project.dispatch()
    assert report.state == PackageState.BLOCKED
    assert (
        "Dependency not permitted (governance violation): package.json adds left-pad"
        in report.reason
    )
    assert "package.json adds zod" in report.reason
    assert "Frozen file changed (governance violation): tsconfig.json" in report.reason

    # Positive control: the same work passes once each of the three is permitted by name.
    for entry in ("dependency:left-pad", "dependency:zod", "tsconfig.json"):
        assert project.command("scope", "allow", "WP01", entry, "--reason", "agreed").code == 0
    assert project.dispatch().state == PackageState.DONE


BLOCK = "\n---\nSUGGESTED NEXT STEPS:\n  [1] Show workflow status\n  [2] Cancel workflow\n---"
# The first answer has no verdict. Asked again, the reviewer gives the missing line only.
FORGETS = (
    'if grep -q your-last-answer.md "$AGILEPLUS_PROMPT"; then echo "<review>PASS</review>"; '
    'else printf "Summary: good.\\n1. [minor] bye.py, line 1\\n   - Wrong: a short name.\\n"; fi'
)


@pytest.mark.demand("M2.a", "M2.b", "P6.h")
def test_a_second_round_settles_findings_and_a_decision_stays_to_the_end(tmp_path: Path) -> None:
    phases = WORKFLOWS["quick"]
    project = make_feature_project(tmp_path)
    drafts = plans(phases[0], phases, round=1)
    revises = turn(
        "plan",
        document("spec.md", SPEC.replace("must name", "must always name")),
        {"print": "Finding 1: settled, it says always now."},
        PASS,
        round=2,
    )
    objects = turn(
        "challenge",
        {"print": "1. [major] spec.md, line 6\n   - Wrong: when must it name the person?"},
        {"verdict": "NEEDS_REVISION"},
        {"print": BLOCK},
        round=1,
    )
    agrees = turn("challenge", {"print": "1. [minor] spec.md\n   - Wrong: a long line."}, PASS)
    doubts = turn(
        "review",
        {"print": "1. [blocker] Who decides?"},
        {"verdict": "MAJOR_ISSUES"},
        {"print": BLOCK},
        workflow_phase="08-code-review",
        round=1,
    )
    forgets = turn("review", {"run": ["sh", "-c", FORGETS]}, package="WP01")
    project.play(
        *(drafts, revises, objects, agrees, doubts, forgets),
        *(*BUILDS, MENDS, turn("review", PASS), ARCHIVES),
    )
    project.start()
    feature = project.drive()
    assert feature.workflow.stage == "blocked", feature.workflow
    assert project.call("resolve", "the farewell is for people only").code == 0
    done = project.call("run", "--merge")
    assert done.code == 0, done

    critic = project.prompts("challenge")[1]
    assert "Earlier rounds found what findings-1.md lists" in critic
    assert "Finding 1: settled, it says always now." in critic
    assert "+- A farewell must always name the person" in critic
    assert "Answer the findings" not in critic
    writer = project.prompts("plan")[1]
    assert "when must it name the person?" in writer
    everything = [project.prompt(job.id) for job in project.jobs()]
    findings = [
        text.partition("<context>")[2].partition("<instructions>")[0] for text in everything
    ]
    assert all(findings)
    assert not any("[1] Show workflow status" in text for text in findings)
    assert not any(
        re.search(r"review(?:&gt;|>)[A-Z_]+(?:&lt;|<)/review", text) for text in findings
    )

    asked = [text for text in project.prompts("review") if "your-last-answer.md" in text]
    assert len(asked) == 1
    assert "there is no &lt;review&gt; marker" in asked[0] or "no <review> marker" in asked[0]
    assert "a short name" in asked[0]

    later_jobs = [job for job in project.jobs() if job.phase in ("archive", "implement")]
    assert "the farewell is for people only" in project.prompt(later_jobs[-1].id)
    output = done.stdout + done.stderr
    assert "minor: WP01: bye.py, line 1 - Wrong: a short name." in output
    assert "minor: spec.md - Wrong: a long line." in output
    merged = project.git("log", "-1", "--format=%B", "main")
    assert "the farewell is for people only" in merged
    assert "the farewell is for people only" in project.show("main", f"{FOLDER}/spec.md")
    retry = [
        entry
        for job in project.jobs()
        for entry in trail(project, job.id)
        if entry["action"] == "retry"
    ]
    assert [entry["attempt"] for entry in retry] == [1]


def test_an_approval_is_no_finding_and_rules_of_tasks_come_only_where_tasks_are_due(
    tmp_path: Path,
) -> None:
    phases = WORKFLOWS["feature"]
    last = "05-test-strategy"
    project = make_feature_project(tmp_path, "feature")
    wrong = document("tasks.md", f"{TASKS}  - Depends: 2.9\n")
    planning = phases[: phases.index(last) + 1]
    project.play(
        turn("plan", document("test-strategy.md"), accepts(), wrong, PASS, workflow_phase=last),
        *(plans(key, phases) for key in planning),
        turn("challenge", {"print": "Consistent."}, PASS),
    )
    assert project.call("run", "feature", DESCRIPTION, "--full").code == 1
    prompts = {
        job.workflow_phase: project.prompt(job.id) for job in project.jobs() if job.phase == "plan"
    }
    assert sorted(prompts) == sorted(planning)
    assert {key for key, text in prompts.items() if "Ids `X.Y`" in text} == {last}

    second = project.prompts("plan")[-1]
    assert "findings-1.md" in second
    assert "2.9" in second.partition("findings-1.md")[2]
    assert "Consistent." not in second
    blocked = project.call("run").stderr + project.call("status").stdout
    assert "2.9" in blocked
    assert "Consistent." not in blocked


def trail(project: FeatureProject, job: str) -> list[dict[str, Any]]:
    path = project.project.location.trails_folder / project.features()[0] / f"{job}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.demand("D13.b", "D13.j", "D7.f", "D7.h")
def test_the_trail_tells_what_was_given_asked_and_falsely_claimed_and_repeats_no_earlier_job(
    tmp_path: Path,
) -> None:
    project = make_project(tmp_path)
    asks = "phasegate status WP01; phasegate worktree list; phasegate next --phase 08-code-review"
    forgets = (
        'if grep -q your-last-answer.md "$AGILEPLUS_PROMPT"; then '
        "echo more > src/more.ts; else echo; fi"
    )
    gives_up = {
        "success": False,
        "status": "blocked",
        "error": "it cannot be done",
        "blocked_reason": "a library is missing",
        "commits": [{"sha": "abc123def456", "message": "WP01: Invented"}],
        "duration_seconds": 90000,
        "cleanup_required": True,
    }
    # The first answer has no result; asked again, the agent gives up with invented facts.
    answers = (
        'if grep -q your-last-answer.md "$AGILEPLUS_PROMPT"; '
        f"then echo '{json.dumps(gives_up)}'; else echo 'All is done.'; fi"
    )
    project.play(
        turn(
            "implement",
            *({"run": ["sh", "-c", asks]}, {"run": ["sh", "-c", forgets]}),
            {"run": ["sh", "-c", "test -e src/login.ts || echo 'export {};' > src/login.ts"]},
            {"run": ["sh", "-c", answers]},
        )
    )
    report = project.dispatch()
    assert (report.state, report.reason) == (PackageState.BLOCKED, "a library is missing")

    whole, short = [project.prompt(job.id) for job in project.jobs()]
    assert "your-last-answer.md" in short
    assert "<file path=" not in short
    assert "METHOD" in whole
    assert "METHOD" not in short
    assert "run its tests before you answer" not in short

    first, second = [project.trail(job.id) for job in project.jobs()]
    given = [entry for entry in first if entry["action"] == "read_spec"]
    assert given
    assert {entry["source"] for entry in given} == {"given"}
    commands = [entry["command"] for entry in first if entry["action"] == "run_command"]
    assert commands[:2] == ["phasegate status WP01", "phasegate worktree list"]

    def written(trail: list[dict[str, Any]]) -> set[str]:
        return {entry["path"] for entry in trail if entry["action"] == "write_file"}

    assert "src/login.ts" in written(first)
    assert "src/login.ts" not in written(second), "it is the first job's"
    assert [entry["attempt"] for entry in second if entry["action"] == "retry"] == [1]
    claims = [entry["claimed"] for entry in second if entry["action"] == "false_claim"]
    assert claims == ["commit abc123def456", "took 90000 s"]
    notices = [entry["text"] for entry in second if entry["action"] == "notice"]
    assert any("was reset: the agent reported cleanup_required" in text for text in notices)
    assert project.audit_problems() == []


TIDIES = """\
trap 'echo tidied > src/login.ts; exit 0' TERM
echo begun > src/begun.ts
while :; do sleep 0.1; done
"""


@pytest.mark.demand("D9.d", "D9.e")
def test_an_agent_has_its_grace_period_when_a_person_stops_the_run(tmp_path: Path) -> None:
    command = json.dumps(["sh", "-c", TIDIES])
    project = make_project(tmp_path, harness=f'harness = "command"\ncommand = {command}')
    begun = project.root / ".worktrees" / f"{SLUG}-WP01" / "src/begun.ts"
    argv = [sys.executable, "-m", "phasegate", "dispatch", "WP01"]
    with subprocess.Popen(
        argv, cwd=project.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert eventually(lambda: begun.exists() or process.poll() is not None, within_s=120)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=100)

    (job,) = project.jobs()
    actions = [entry["action"] for entry in project.trail(job.id)]
    assert "told_to_stop" in actions
    assert "killed" not in actions, actions
    texts = [project.git("show", f"{ref}:src/login.ts") for ref in project.saved()]
    assert "tidied" in texts


@pytest.mark.demand("M2.c")
def test_the_review_of_a_feature_has_the_evidence_of_its_tree_and_the_findings_of_the_scan(
    tmp_path: Path,
) -> None:
    scan = 'scan = "echo B105 possible password in bye.py; exit 1"\n'
    project = make_feature_project(tmp_path, config=scan)
    reads = {"run": ["sh", "-c", "cat phasegate-output/test.log"]}
    phases = WORKFLOWS["quick"]
    rounds = [
        turn(
            "implement",
            {"write": "docs.md", "content": text},
            {"commit": "{wp_id}: Write the page"},
            {"result": "success", "summary": summary},
            package="WP02",
            round=number,
        )
        for number, text, summary in (
            (1, "TODO\n", "Wrote the page about bye."),
            (2, "Call bye.\n", "Removed a leftover."),
        )
    ]
    project.play(
        turn("review", reads, PASS, workflow_phase="08-code-review"),
        *rounds,
        *(plans(phases[0], phases), *BUILDS, turn("challenge", PASS), turn("review", PASS)),
    )
    project.start()
    feature = project.drive()
    assert feature.workflow.stage == "gate-passed", feature.workflow
    review = project.jobs()[-1]
    prompt = project.prompt(review.id)
    assert f"Commit {feature.evaluated_commit}, compared with" in prompt
    assert "2 passed, 0 failed, 0 skipped; before the work: 1 passed" in prompt
    assert "- lint: passed" in prompt
    assert "B105 possible password in bye.py" in prompt
    log = (project.project.jobs_folder / review.id / "stdout.log").read_text()
    assert "Ran 2 tests" in log, log
    report = project.show(f"feat/{project.features()[0]}", f"{FOLDER}/IMPLEMENTATION.md")
    assert "Wrote the page about bye. Round 2: Removed a leftover." in report
