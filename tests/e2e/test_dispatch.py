"""A work package from envelope to evidence, with real git, real processes and scripted agents (D1-D13)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from phasegate.core.plan.work_package import PackageState
from phasegate.errors import StateConflict
from support.board_client import BoardClient
from support.dispatch_project import (
    FEATURE,
    FILES,
    SLUG,
    TEST_COMMAND,
    WP01,
    DispatchProject,
    Step,
    approves,
    implements,
    make_project,
    package,
    turn,
    writes,
)
from support.sandboxed import processes_with

CODE = ["src/components/LoginForm.tsx", "src/hooks/useLogin.ts", "src/styles/LoginForm.module.css"]
TESTS = ["src/components/__tests__/LoginForm.test.tsx", "src/hooks/__tests__/useLogin.test.ts"]
DOCUMENTATION = ["src/components/LoginForm.md"]
SIX = [*CODE, *TESTS, *DOCUMENTATION]
FORM = "src/login.ts"
SUCCESS: Step = {"result": "success"}
COMMIT: Step = {"commit": "{wp_id}: Write what is due"}
FINDING = "The password field takes seven characters: FR-AUTH-002."


def login_form() -> str:
    deliverables = {"code": CODE, "tests": TESTS, "documentation": DOCUMENTATION}
    return package(
        files=SIX, title="Implement Login Form Component", deliverables=deliverables, num_agents=2
    )


def blocked(project: DispatchProject) -> tuple[str, str]:
    """Dispatch to BLOCKED: the reason and the remediation, as they were reported and as they are on record."""
    report = project.dispatch()
    row = project.rows()["WP01"]
    assert (report.state, row.state) == (PackageState.BLOCKED, PackageState.BLOCKED)
    assert (row.reason, row.remediation) == (report.reason, report.remediation)
    assert project.audit_problems() == []
    assert FORM not in project.files_of(FEATURE)
    return report.reason, report.remediation


def ends(project: DispatchProject) -> list[str]:
    return [job.outcome for job in project.jobs()]


# --- the example


@pytest.mark.demand(
    "D4.a",
    "D4.d",
    "D4.e",
    "D5.a",
    "D8.a",
    "D8.e",
    "D11.a",
    "D11.b",
    "D11.c",
    "D11.d",
    "D12.b",
    "D13.a",
    "D13.c",
    "W8.e",
)
def test_the_login_form_is_built_by_two_agents_and_two_review_rounds(tmp_path: Path) -> None:
    # The scripted tests are no tests that the runner knows
    project = make_project(tmp_path, {"WP01": login_form()}, run="[evidence]\nenabled = false\n")
    first, second = SIX[:3], SIX[3:]
    project.play(
        implements(*first, round=1, agent_index=0),
        implements(*second, round=1, agent_index=1),
        turn(
            "implement",
            *writes(first[0], text="// eight characters\n"),
            COMMIT,
            SUCCESS,
            agent_index=0,
        ),
        turn("implement", SUCCESS, agent_index=1),
        turn("review", {"print": FINDING}, {"verdict": "NEEDS_CHANGES"}, round=1),
        approves(),
    )
    (project.root / "README.md").write_text("Work of the person, not committed\n")
    before = (
        project.git("rev-parse", "main"),
        project.git("status", "--porcelain"),
        project.git("branch", "--show"),
    )
    said: list[str] = []
    report = project.dispatch(said=said)
    assert (report.state, report.round, report.branch) == (PackageState.DONE, 2, WP01)
    assert [line for line in said if "->" in line] == [
        "WP01 PLANNED -> DOING",
        "WP01 DOING -> FOR_REVIEW",
        "WP01 FOR_REVIEW -> DOING",
        "WP01 DOING -> FOR_REVIEW",
        "WP01 FOR_REVIEW -> DONE",
    ]
    assert set(SIX) <= project.files_of(WP01)
    assert project.files_of(WP01) == project.files_of(FEATURE)
    assert project.git("show", f"{FEATURE}:{first[0]}") == "// eight characters"
    assert "WP01.md" not in {
        Path(name).name for name in project.files_of(FEATURE) if not name.startswith("kitty")
    }
    assert project.git("merge-base", "--is-ancestor", report.commit, FEATURE) == ""
    assert before == (
        project.git("rev-parse", "main"),
        project.git("status", "--porcelain"),
        project.git("branch", "--show"),
    )
    assert project.worktrees() == set()
    assert project.audit_problems() == []
    jobs = project.jobs()
    assert [(job.phase, job.round) for job in jobs] == [
        ("implement", 1),
        ("implement", 1),
        ("review", 1),
        ("implement", 2),
        ("implement", 2),
        ("review", 2),
    ]
    assert all(job.started < job.ended for job in jobs)
    assert FINDING not in project.prompt(jobs[0].id)
    assert FINDING in project.prompt(jobs[3].id)
    wrote: list[list[str]] = []
    for job in jobs:
        entries = project.trail(job.id)
        actions = [
            entry["action"]
            for entry in entries
            if entry["action"] not in ("read_spec", "write_file")
        ]
        own = [entry["path"] for entry in entries if entry["action"] == "write_file"]
        assert actions[: actions.index("answer")] == ["start", *(["commit"] if own else []), "exit"]
        wrote.append(sorted(own))
        assert {entry["job"] for entry in entries} == {job.id}
    assert sorted(wrote) == sorted([sorted(first), sorted(second), [], [first[0]], [], []])


SAVES = """
import json, os, pathlib, sys
envelope = json.load(sys.stdin)
names = [name for name in os.environ if name.startswith("AGILEPLUS_")]
seen = {"envelope": envelope, "env": {name: os.environ[name] for name in names}, "cwd": os.getcwd()}
seen["document"] = pathlib.Path(envelope["prompt_path"]).read_text()
seen["context"] = [pathlib.Path(path).read_text() for path in envelope["context_paths"]]
seen["prompt"] = pathlib.Path(os.environ["AGILEPLUS_PROMPT"]).read_text()[:8]
if os.environ["PHASEGATE_PHASE"] == "review":
    print("<review>PASS</review>")
else:
    pathlib.Path("src/login.ts").write_text("export {}")
    pathlib.Path("src/seen.json").write_text(json.dumps(seen))
    answer = {"job_id": envelope["job_id"], "wp_id": envelope["wp_id"], "success": True, "status": "completed"}
    print("Some words around it.", json.dumps(answer), "And after it.", sep="\\n")
"""


@pytest.mark.demand(
    "D1.a", "D1.c", "D1.d", "D1.g", "D3.h", "D7.c", "D7.d", "D8.f", "D16.a", "D16.b", "D17.c"
)
def test_any_program_gets_the_envelope_with_every_field(tmp_path: Path) -> None:
    program = tmp_path / "agent.py"
    program.write_text(SAVES)
    harness = f'harness = "command"\ncommand = {json.dumps([sys.executable, str(program)])}\ntimeout_s = 60'
    document = package(files=[FORM, "src/seen.json"])
    documents = {
        f"kitty-specs/{SLUG}/spec.md": "listed by name",
        f"kitty-specs/{SLUG}/plan.md": "---\naudience: [developers]\n---\nnot for agents",
        "ARCHITECTURE.md": "---\naudience: [agents, developers]\n---\nfor agents too",
        "GOVERNANCE.md": "not listed, and says nothing",
    }
    project = make_project(
        tmp_path, {"WP01": document}, harness=harness, files={**FILES, **documents}
    )
    assert project.dispatch().state is PackageState.DONE
    seen: dict[str, Any] = json.loads(project.git("show", f"{FEATURE}:src/seen.json"))
    (job, _) = project.jobs()
    worktree = str(project.root / ".worktrees" / f"{SLUG}-WP01")
    assert seen["envelope"] == {
        "job_id": job.id,
        "feature_slug": SLUG,
        "wp_sequence": 1,
        "wp_id": "WP01",
        "prompt_path": f"{worktree}/WP01.md",
        "context_paths": [
            f"{worktree}/kitty-specs/{SLUG}/spec.md",
            f"{worktree}/ARCHITECTURE.md",
        ],
        "worktree_path": worktree,
        "config": {
            "kind": "command",
            "timeout_secs": 60,
            "pr_target_branch": FEATURE,
            "num_agents": 1,
            "max_review_cycles": 5,
        },
    }
    assert seen["cwd"] == worktree
    assert seen["document"].startswith(document)  # what it lacked follows
    assert seen["prompt"] == "<prompt>"
    assert seen["env"]["AGILEPLUS_JOB_ID"] == job.id
    assert seen["env"]["AGILEPLUS_WP_ID"] == "WP01"
    assert seen["env"]["AGILEPLUS_CONTEXT"].split(":") == seen["envelope"]["context_paths"]
    assert seen["context"] == ["listed by name", documents["ARCHITECTURE.md"]]
    assert project.git("log", "-1", "--format=%s", WP01) == "WP01: Do WP01"
    assert project.dispatch().state is PackageState.DONE
    assert len(project.jobs()) == 2, "what is done is not done again"


@pytest.mark.demand("D1.b", "D11.a")
def test_each_of_two_agents_is_told_its_share(tmp_path: Path) -> None:
    project = make_project(
        tmp_path, {"WP01": package(files=["src/a.ts", "src/b.ts", "src/c.ts"], num_agents=2)}
    )
    share = "{agent_index} of {agent_count}: {assigned_deliverables}"
    project.play(
        turn("implement", *writes("src/a.ts", "src/b.ts", text=share), SUCCESS, agent_index=0),
        turn("implement", *writes("src/c.ts", text=share), SUCCESS, agent_index=1),
        approves(),
    )
    assert project.dispatch().state is PackageState.DONE
    assert project.git("show", f"{FEATURE}:src/a.ts") == "0 of 2: src/a.ts\nsrc/b.ts"
    assert project.git("show", f"{FEATURE}:src/c.ts") == "1 of 2: src/c.ts"


@pytest.mark.demand("D5.f", "D4.b", "D4.h", "D14.a", "D14.b")
def test_a_package_waits_for_its_dependencies_and_then_has_their_work(tmp_path: Path) -> None:
    second = package("WP02", ["src/second.ts"], dependencies=["WP01"])
    project = make_project(tmp_path, {"WP01": package(), "WP02": second})
    see = {"run": f"cat {FORM} > src/second.ts"}
    project.play(
        implements(FORM, package="WP01"), turn("implement", see, COMMIT, SUCCESS), approves()
    )
    with pytest.raises(StateConflict, match=r"WP02 depends on WP01 \(PLANNED\)"):
        project.dispatch("WP02")
    refused = project.command("dispatch", "WP02")
    assert (refused.code, project.jobs()) == (4, [])
    assert [row["id"] for row in project.command("worktree", "list", "--json").json] == ["WP01"]
    done = project.command("dispatch", "WP01", "--json")
    assert (done.code, done.json["state"]) == (0, "DONE"), done.stderr
    assert [row["id"] for row in project.command("worktree", "list", "--json").json] == ["WP02"]
    assert project.dispatch("WP02").state is PackageState.DONE
    assert project.git("show", f"{FEATURE}:src/second.ts") == "export const done = true;"
    assert project.command("audit", "verify").code == 0
    assert "DONE" in project.command("status", "WP01").stdout


# --- the failure responses


@pytest.mark.demand("D10.b", "D7.a")
@pytest.mark.parametrize(
    ("reason", "remediation"),
    [
        ("File scope violation", "Contact human: Need to refactor auth.ts in separate WP"),
        (
            "Dependency not permitted (governance violation)",
            "Human must approve zod library addition",
        ),
    ],
)
def test_a_failure_response_blocks_with_its_reason_and_remedy(
    tmp_path: Path, reason: str, remediation: str
) -> None:
    project = make_project(tmp_path)
    answer = {
        "result": "blocked",
        "error": "Cannot go on",
        "blocked_reason": reason,
        "remediation": remediation,
    }
    project.play(turn("implement", *writes(FORM), answer))
    assert blocked(project) == (reason, remediation)
    assert ends(project) == ["blocked"]


@pytest.mark.demand("D7.i")
@pytest.mark.parametrize("step", ["print", "print_stderr"])
def test_a_blocker_line_blocks(tmp_path: Path, step: str) -> None:
    project = make_project(tmp_path)
    line = "BLOCKER: Cannot import @babel/preset-react (not in approved list)"
    project.play(turn("implement", *writes(FORM), {step: line}, {"exit": 1}))
    reason, remediation = blocked(project)
    assert "Cannot import @babel/preset-react (not in approved list)" in reason
    assert remediation


@pytest.mark.demand("D10.b", "D7.i")
def test_what_an_agent_says_outright_is_not_tried_again(tmp_path: Path) -> None:
    """Though its last words look like a failing network."""
    project = make_project(tmp_path)
    project.play(
        turn(
            "implement",
            {"print_stderr": "BLOCKER: connection refused by the registry"},
            {"exit": 1},
        )
    )
    assert "connection refused by the registry" in blocked(project)[0]
    assert len(project.jobs()) == 1


@pytest.mark.demand("D7.h", "D4.c")
def test_cleanup_required_saves_the_state_and_resets_the_checkout(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    answer = {"result": "blocked", "blocked_reason": "Stuck", "cleanup_required": True}
    project.play(turn("implement", *writes(FORM), COMMIT, *writes("src/half.ts"), answer))
    assert blocked(project)[0] == "Stuck"
    worktree = project.root / ".worktrees" / f"{SLUG}-WP01"
    assert (worktree / "README.md").exists()
    assert not (worktree / FORM).exists()
    assert not (worktree / "src/half.ts").exists()
    (ref,) = project.saved()
    assert {FORM, "src/half.ts"} <= project.files_of(ref)


@pytest.mark.demand("D7.h")
def test_the_work_of_a_success_is_not_thrown_away_by_a_stray_field(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    project.play(
        turn("implement", *writes(FORM), COMMIT, {**SUCCESS, "cleanup_required": True}), approves()
    )
    report = project.dispatch()
    assert (report.state, report.round) == (PackageState.DONE, 1)


@pytest.mark.demand("D9.b", "D9.c", "D9.f", "D10.b")
def test_an_agent_that_runs_out_of_time_is_stopped_and_blocked(tmp_path: Path) -> None:
    project = make_project(tmp_path, agent="timeout_s = 5")
    stubborn = "trap '' TERM; echo half an answer; setsid sleep 600 & sleep 600"
    project.play(turn("implement", {"run": stubborn}, SUCCESS))
    reason, _ = blocked(project)
    assert "timed out" in reason
    (job,) = project.jobs()
    assert "half an answer" in (project.project.jobs_folder / job.id / "stdout.log").read_text()
    assert "told_to_stop" in [entry["action"] for entry in project.trail(job.id)]
    assert processes_with(str(project.scenario)) == []


WAITS = """
import json, os, pathlib, signal, sys, time
envelope = json.load(sys.stdin)
def finish(*_):
    if sys.argv[1] == "answers":
        answer = {"job_id": envelope["job_id"], "wp_id": envelope["wp_id"], "success": True, "status": "completed"}
        print(json.dumps(answer), flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, finish)
if os.environ["PHASEGATE_PHASE"] == "review":
    print("<review>PASS</review>")
else:
    pathlib.Path("src/login.ts").write_text("export {}")
    while True:
        signal.pause()
"""


@pytest.mark.demand("D9.d", "D9.e")
@pytest.mark.parametrize(
    ("manner", "state"), [("answers", PackageState.DONE), ("is silent", PackageState.BLOCKED)]
)
def test_an_agent_that_ends_when_it_is_told_to_is_judged_by_its_answer(
    tmp_path: Path, manner: str, state: PackageState
) -> None:
    program = tmp_path / "agent.py"
    program.write_text(WAITS)
    command = json.dumps([sys.executable, str(program), manner])
    project = make_project(
        tmp_path, harness=f'harness = "command"\ncommand = {command}\ntimeout_s = 6'
    )
    report = project.dispatch()
    assert report.state is state
    assert ("timed out" in report.reason) == (state is PackageState.BLOCKED)
    first = project.jobs()[0]
    assert "told_to_stop" in [entry["action"] for entry in project.trail(first.id)]
    assert len([job for job in project.jobs() if job.phase == "implement"]) == 1


@pytest.mark.demand("D7.g", "P6.h")
def test_work_without_an_answer_is_asked_for_once_more_and_then_blocked(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    project.play(turn("implement", *writes(FORM), {"print": "All is well."}))
    reason, _ = blocked(project)
    first, second = project.jobs()
    assert ends(project) == ["unreadable", "unreadable"]
    assert reason
    assert reason not in project.prompt(first.id)
    assert reason in project.prompt(second.id)


@pytest.mark.demand("D7.a")
@pytest.mark.parametrize(
    ("field", "refusal"),
    [({"job_id": "3a6b8c9d"}, "AnotherJob"), ({"wp_id": "WP02"}, "AnotherPackage")],
)
def test_the_answer_of_another_job_is_refused(tmp_path: Path, field: Step, refusal: str) -> None:
    project = make_project(tmp_path)
    project.play(turn("implement", *writes(FORM), {**SUCCESS, **field}))
    assert f"invalid: {refusal}" in blocked(project)[0]
    assert ends(project) == ["unreadable", "unreadable"]


@pytest.mark.demand("D7.a", "D7.h")
def test_a_failure_of_another_job_cleans_nothing(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    foreign = {
        "result": "blocked",
        "job_id": "3a6b8c9d",
        "blocked_reason": "Not mine",
        "cleanup_required": True,
    }
    project.play(turn("implement", *writes(FORM), foreign))
    assert "invalid" in blocked(project)[0]
    assert (project.root / ".worktrees" / f"{SLUG}-WP01" / FORM).exists()


@pytest.mark.demand("D7.g")
def test_a_success_response_with_exit_status_1_is_no_success(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    project.play(turn("implement", *writes(FORM), COMMIT, SUCCESS, {"exit": 1}))
    assert "exit status 1" in blocked(project)[0]


@pytest.mark.demand("D5.e")
def test_why_a_program_failed_is_told_in_its_own_last_words(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    project.play(
        turn(
            "implement",
            {"run": "printf 'warming up\\nno licence\\033[2J found\\n\\n' >&2"},
            {"exit": 3},
        )
    )
    reason, remediation = blocked(project)
    assert reason == "exit status 3: no licence found"
    (job,) = project.jobs()
    assert f"audit show --job {job.id}" in remediation
    assert project.command("audit", "show", "--job", job.id).stdout.splitlines()[-1] == (
        f"output: .phasegate/jobs/{job.id}/stderr.log"
    )


@pytest.mark.demand("D6.a", "D6.b", "D6.g", "D6.h", "D6.i")
def test_a_scope_violation_blocks_until_a_person_allows_the_path(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    project.play(turn("implement", *writes(FORM, "src/services/auth.ts"), SUCCESS), approves())
    reason, remediation = blocked(project)
    assert reason.startswith("File scope violation: src/services/auth.ts")
    assert "phasegate show WP01 --diff" in remediation
    # One line that can be pasted, and its first command shows the change
    assert "phasegate scope allow WP01 src/services/auth.ts --reason '" in remediation
    assert "' --feature 001 && phasegate run --feature 001." in remediation
    shown = project.command("show", "WP01", "--diff")
    assert "+++ b/src/services/auth.ts" in shown.stdout, shown.stderr
    paths = ("src/services/auth.ts", "src/services/index.ts")
    allowed = project.command("scope", "allow", "WP01", *paths, "--reason", "it needs a new call")
    assert allowed.code == 0, allowed.stderr
    assert "may change src/services/index.ts" in allowed.stdout
    again = project.command("dispatch", "WP01", "--json")
    assert (again.code, again.json["state"]) == (0, "DONE"), again.stderr
    # The finished work is taken as it is, and the reviewer knows who allowed what.
    assert [job.phase for job in project.jobs()] == ["implement", "review"]
    said = "src/services/auth.ts was added to the scope by Test: it needs a new call"
    assert said in project.prompt(project.jobs()[1].id)
    assert project.git("show", f"{FEATURE}:src/services/auth.ts") == "export const done = true;"
    assert project.audit_problems() == []


def test_without_a_workflow_a_refused_path_is_followed_by_a_dispatch(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    project.play(turn("implement", *writes(FORM, "stray.ts"), SUCCESS))
    done = project.command("dispatch", "WP01")
    said = done.stdout + done.stderr
    assert "--feature 001 && phasegate dispatch WP01 --feature 001.\n" in said
    assert "phasegate run" not in said
    assert "phasegate resolve" not in said


@pytest.mark.demand("D5.e", "D8.b")
def test_a_program_that_is_missing_is_named_before_an_agent_is_paid(tmp_path: Path) -> None:
    project = make_project(tmp_path, {"WP01": package(test="no-such-runner --all")})
    project.play(implements(FORM), approves())
    refused = project.command("dispatch", "WP01")
    assert refused.code == 3
    assert "no-such-runner" in refused.stderr
    assert "its program is missing" in refused.stderr
    assert 'test = "..."' in refused.stderr
    assert project.jobs() == []


@pytest.mark.demand("D5.e", "D8.b")
def test_a_program_of_the_packages_own_that_is_missing_round_after_round_is_a_persons_business(
    tmp_path: Path,
) -> None:
    project = make_project(tmp_path, {"WP01": package(test="./run-all-tests")})
    project.play(
        implements(FORM, round=1),
        turn("implement", {"write": FORM, "content": "// more\n"}, SUCCESS),
    )
    reason, remediation = blocked(project)
    assert (
        reason
        == "test: exit status 127: its program is missing (./run-all-tests), again in this round"
    )
    assert "install it" in remediation
    assert [(job.phase, job.round) for job in project.jobs()] == [
        ("implement", 1),
        ("implement", 2),
    ]
    assert "its program is missing" in project.prompt(project.jobs()[1].id)


@pytest.mark.demand("D11.b", "D11.e", "D6.h")
def test_an_agent_that_edits_the_file_of_the_other_blocks_the_package(tmp_path: Path) -> None:
    project = make_project(
        tmp_path, {"WP01": package(files=["src/mine.ts", "src/yours.ts"], num_agents=2)}
    )
    project.play(
        implements("src/mine.ts", "src/yours.ts", agent_index=0),
        implements("src/yours.ts", agent_index=1),
        approves(),
    )
    reason, _ = blocked(project)
    assert reason.startswith("File scope violation: src/yours.ts")


@pytest.mark.demand("D11.e")
def test_one_agent_that_fails_blocks_the_package_of_two(tmp_path: Path) -> None:
    project = make_project(tmp_path, {"WP01": package(files=["src/mine.ts", FORM], num_agents=2)})
    waits = turn("implement", {"sleep_s": 600}, agent_index=0)
    project.play(waits, turn("implement", {"exit": 3}, agent_index=1))
    assert blocked(project)[0] == "exit status 3"
    reasons = {project.trail(job.id)[-1]["reason"] for job in project.jobs()}
    assert any(reason.startswith("it was stopped after") for reason in reasons), reasons


@pytest.mark.demand("D5.b", "D5.e")
def test_major_issues_block_and_the_findings_are_kept(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    project.play(implements(FORM), turn("review", {"print": FINDING}, {"verdict": "MAJOR_ISSUES"}))
    assert "MAJOR_ISSUES" in blocked(project)[0]
    # The finding itself and a command with the name of the package, in every list
    for told in (project.command("status"), project.command("show", "WP01")):
        assert FINDING in told.stdout
        assert "(phasegate show WP01 --answer)" in told.stdout
    with BoardClient(project.root) as board:
        page = board.get(f"/at/repo/feature/{SLUG}/WP01").text
        assert (FINDING in page, "Allow this path" in page) == (True, False), "nothing was refused"
        unknown = board.get("/at/repo/nowhere")
        assert (unknown.status, "All features" in unknown.text) == (404, True), "inside the frame"
    assert "actor  MAJOR_ISSUES" in project.command("status", "WP01").stdout
    project.play(turn("implement", SUCCESS), approves())
    assert project.dispatch().state is PackageState.DONE
    assert FINDING in project.prompt(project.jobs()[2].id)


@pytest.mark.demand("P6.h", "D5.e")
@pytest.mark.parametrize("words", ["I approve of it all: PASS", "<review>NEEDS_REVISION</review>"])
def test_a_review_without_an_allowed_verdict_is_never_a_pass(tmp_path: Path, words: str) -> None:
    project = make_project(tmp_path)
    project.play(implements(FORM), turn("review", {"print": words}))
    blocked(project)
    assert ends(project) == ["done", "unreadable", "unreadable"]


@pytest.mark.demand("D12.a", "D12.c", "D5.b", "W3.d")
@pytest.mark.parametrize(
    ("run", "cycles"), [("", 5), ("max_review_cycles = 2", 2)], ids=["usual", "set"]
)
def test_the_review_cycles_are_used_up(tmp_path: Path, run: str, cycles: int) -> None:
    project = make_project(tmp_path, run=run)
    more = turn("implement", {"write": FORM, "content": "// round {round}\n"}, SUCCESS)
    rejected = turn("review", {"print": "not in round {round}"}, {"verdict": "NEEDS_CHANGES"})
    project.play(implements(FORM, round=1), more, rejected)
    assert project.command("dispatch", "WP01").code == 1
    row = project.rows()["WP01"]
    assert (row.state, f"all {cycles} review cycles are used up" in row.reason) == (
        "BLOCKED",
        True,
    ), row
    each = [(phase, number) for number in range(1, cycles + 1) for phase in ("implement", "review")]
    assert [(job.phase, job.round) for job in project.jobs()] == each


@pytest.mark.demand("D8.a", "D8.c", "D8.k", "D12.b", "D7.g")
def test_a_failed_manifest_is_never_reviewed_and_its_remedy_goes_back(tmp_path: Path) -> None:
    project = make_project(tmp_path, {"WP01": package(files=[FORM, "src/other.ts"])})
    project.play(
        turn("implement", *writes(FORM, text="// TODO\n"), COMMIT, SUCCESS, round=1),
        implements(FORM, "src/other.ts"),
        approves(),
    )
    assert project.dispatch().round == 2
    jobs = project.jobs()
    assert [job.phase for job in jobs] == ["implement", "implement", "review"]
    told = project.prompt(jobs[1].id)
    assert "src/other.ts" in told
    assert "test_no_source_says_todo" in told
    assert "What to do:" in told


@pytest.mark.demand("D10.a")
def test_a_transient_error_is_tried_again_up_to_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "phasegate.engine.drive.agent_wait.retry_backoff_s", lambda attempt, jitter: 0.01
    )
    project = make_project(tmp_path, agent="max_retries = 1")
    fails: Step = {"print_stderr": "fetch failed: ECONNRESET"}
    project.play(turn("implement", fails, {"exit": 1}))
    assert "network" in blocked(project)[0]
    assert ends(project) == ["transient", "transient"]
    project.play(implements(FORM), approves())
    assert project.dispatch().state is PackageState.DONE


@pytest.mark.demand("D6.e", "D6.l")
def test_the_reviewer_is_told_what_a_diff_would_not_make_plain(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    on_the_way = [*writes("src/passing.ts"), {"commit": "WP01: Try"}, {"delete": "src/passing.ts"}]
    planted = {"run": "mkdir -p .git/hooks; echo > .git/hooks/post-commit"}
    lock = {"write": "package-lock.json", "content": "{}\n"}
    project.play(
        turn("implement", *on_the_way, *writes(FORM), lock, COMMIT, planted, SUCCESS), approves()
    )
    report = project.dispatch()
    assert report.state is PackageState.DONE, report.reason
    told = project.prompt(project.jobs()[1].id)
    assert "look at each entry: package-lock.json." in told
    assert "not in the result: src/passing.ts." in told
    assert "its own git directory: .git/hooks, .git/hooks/post-commit." in told


@pytest.mark.demand("D8.h", "D8.k", "D10.a")
def test_a_setup_that_cannot_reach_the_network_is_not_the_agent_s_to_mend(tmp_path: Path) -> None:
    """It is told before an agent is paid; when it is mended, or left out, the package goes on."""
    pip = "echo 'NewConnectionError: [Errno -3] Temporary failure in name resolution' >&2; exit 1"
    project = make_project(
        tmp_path, {"WP01": package(profile="python")}, run=f"\n[checks.python]\nsetup = {pip!r}"
    )
    project.play(implements(FORM), approves())
    refused = project.command("dispatch", "WP01")
    assert refused.code == 3
    assert "the setup could not reach the network, so nothing was tested: echo" in refused.stderr
    assert 'setup = ""' in refused.stderr
    assert (project.rows()["WP01"].state, project.jobs()) == ("PLANNED", []), "no agent was paid"
    settings = project.root / "phasegate.toml"
    settings.write_text(
        settings.read_text().partition("[checks.python]")[0] + '[checks.python]\nsetup = ""\n'
    )
    assert project.dispatch().state is PackageState.DONE
    assert ends(project) == ["done", "done"]


@pytest.mark.demand("D8.h", "D12.b")
def test_a_setup_that_fails_for_another_reason_goes_back_to_the_agent(tmp_path: Path) -> None:
    checks = {"setup": f"test ! -e {FORM} || grep -q true {FORM}", "test": TEST_COMMAND}
    project = make_project(tmp_path, {"WP01": package(checks=checks)})
    project.play(
        implements(FORM, round=2),
        turn("implement", *writes(FORM, text="no\n"), COMMIT, SUCCESS),
        approves(),
    )
    assert project.dispatch().round == 2
    assert "setup: exit status 1" in project.prompt(project.jobs()[1].id)


@pytest.mark.demand("D8.a", "D6.c")
def test_a_file_in_scope_that_is_no_deliverable_can_be_deleted_by_the_first_of_two(
    tmp_path: Path,
) -> None:
    document = package(
        files=["src/mine.ts", "src/yours.ts"],
        num_agents=2,
        file_scope=["src/mine.ts", "src/yours.ts", "README.md"],
    )
    project = make_project(tmp_path, {"WP01": document})
    delete: Step = {"delete": "README.md"}
    project.play(
        turn("implement", *writes("src/mine.ts"), delete, COMMIT, SUCCESS, agent_index=0),
        implements("src/yours.ts", agent_index=1),
        approves(),
    )
    report = project.dispatch()
    assert report.state is PackageState.DONE, report.reason
    assert "README.md" not in project.files_of(FEATURE)
