"""The steps of a workflow by hand, and every wrong start or order with its remedy (W4, W6)."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from phasegate.core.machine.feature_events import Advanced, Escalated, PackageStarted, Started
from phasegate.core.plan.work_package import PackageState
from phasegate.core.workflow.phase_transitions import Stage
from phasegate.core.workflow.phases import required_artifacts
from phasegate.core.workflow.workflow_phases import WORKFLOWS
from phasegate.engine.drive.run_feature import drive_feature
from phasegate.engine.drive.run_package import Stopped, dispatch_package
from phasegate.engine.jobs.step_context import StepContextReader
from phasegate.engine.journal.feature import open_feature_journal
from phasegate.engine.journal.package import find_package
from phasegate.engine.project.project import open_project_store
from phasegate.engine.steps.feature_steps import FeatureSteps
from phasegate.storage.lock import feature_lock
from support.dispatch_project import Done, turn
from support.feature_project import (
    APPROVES,
    ARCHIVES,
    BYE,
    DESCRIPTION,
    SLUG,
    TASKS,
    FeatureProject,
    blocks_in,
    builds,
    document,
    file,
    make_feature_project,
    plans,
    says,
    smooth,
)
from support.feature_project import PASS as SAYS_PASS

# A workflow of a planning phase and a review: few agents, all orders.
NOTE = '[workflows.note]\nphases = ["01-requirements", "08-code-review"]\n'
PHASES = ("01-requirements", "08-code-review")
WRITES = plans("01-requirements", PHASES)
BLOCKER = ("Resolve blocker and retry", "Cancel workflow", "Show workflow status")


def note_project(folder: Path, config: str = "") -> FeatureProject:
    project = make_feature_project(folder, config=NOTE + config)
    project.play(WRITES, *APPROVES, ARCHIVES)
    return project


def expect_refusal(done: Done, code: int, *parts: str) -> None:
    """Nothing on stdout, the reason and what to do on stderr."""
    assert (done.code, done.stdout) == (code, ""), done
    for part in parts:
        assert part in done.stderr
    assert "hint: " in done.stderr


@pytest.mark.demand("W1.j")
def test_a_workflow_with_two_phases_of_packages_is_refused(tmp_path: Path) -> None:
    flow = '[workflows.twice]\nphases = ["01-requirements", "06-implementation", "16-upgrade-execute"]\n'
    project = make_feature_project(tmp_path, config=flow)
    expect_refusal(project.call("start", "twice", "x"), 2, "twice has two work package phases")


@pytest.mark.demand("W4.a", "W1.j")
def test_a_wrong_start_says_what_to_do_and_leaves_nothing(tmp_path: Path) -> None:
    project = note_project(tmp_path)
    expect_refusal(
        project.call("start", "featur", "x"),
        2,
        "unknown workflow 'featur'",
        "feature",
        "available: ",
    )
    expect_refusal(
        project.call("start", "feature"), 2, "a feature needs a description", "what you want"
    )
    expect_refusal(project.call("run", "fix", "  "), 2, "a fix needs a description")
    expect_refusal(
        project.call("run", "note", "x", "--feature", SLUG),
        2,
        "--feature cannot be combined with TYPE",
    )
    expect_refusal(
        project.call("start", "note", "x", "--agent", "nobody"),
        2,
        "the agent nobody cannot be started",
    )
    project.git("checkout", "-q", "--detach")
    expect_refusal(
        project.call("start", "note", "x"), 4, "HEAD is detached", "check out the branch"
    )
    project.git("checkout", "-q", "main")
    assert project.branches() == {"main"}
    expect_refusal(project.call("run"), 4, "no workflow is active", "run feature")


@pytest.mark.demand("W4.a")
def test_a_repository_without_a_commit_cannot_begin_and_says_so(tmp_path: Path) -> None:
    project = note_project(tmp_path)
    shutil.rmtree(project.root / ".git")
    project.git("init", "-q", "-b", "main")
    done = project.call("start", "note", "x")
    assert done.code in (2, 4), done
    assert "commit" in done.stderr
    assert "hint: " in done.stderr


@pytest.mark.demand("D3.h")
def test_without_an_agent_it_is_refused_and_the_scripted_one_is_never_taken_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_feature_project(tmp_path, config=NOTE, agents="# none\n")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("git", "sh", "python3"):
        (tools / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(tools))
    expect_refusal(
        project.call("start", "note", "x"), 2, "no agent can be started", "[agents.NAME]"
    )
    with (project.root / "phasegate.toml").open("a") as config:
        config.write(
            '[agents.gone]\nharness = "command"\ncommand = ["no-such-program"]\n[roles]\nplan = "gone"\n'
        )
    expect_refusal(
        project.call("start", "note", "x"), 2, "the agent gone cannot be started", "available: none"
    )


@pytest.mark.demand("W4.a", "N7.a", "W1.j")
def test_start_begins_and_carries_nothing_out(tmp_path: Path) -> None:
    project = note_project(tmp_path)
    done = project.call("start", "note", DESCRIPTION)
    assert done.code == 0
    assert blocks_in(done.stdout)[0][0] == "Describe your feature to begin Phase 01 - Requirements"
    assert "2 phases; at least 4 agent runs." in done.stderr
    assert project.jobs() == []
    checked = project.call("gate")
    assert checked.code == 1
    not_ready = "GATE-01 NOT READY: 01-requirements is still in progress\n---\n"
    assert checked.stdout.startswith(not_ready)
    # [1] advances: `advance` is refused now, and `run` is not.
    advancing = ("Run Phase 01 - Requirements", "Review requirements documents")
    assert blocks_in(checked.stdout)[0][:2] == advancing
    assert blocks_in(project.command("next").stdout)[0][:2] == advancing
    assert project.call("advance").code == 4
    assert "proposal.md is missing" in checked.stderr
    assert project.call("gate", "--json").json["outcome"] == "not ready"

    # Nothing of ours is in state.json.
    state = project.state()
    assert isinstance(state, dict)
    assert (state["type"], state["current_phase_index"]) == ("note", 0)
    assert state.keys() == {
        *("type", "phases", "current_phase", "current_phase_index"),
        *("artifact_folder", "phase_status"),
    }
    data = project.call("start", "note", "another", "--json").json
    assert (data["feature"], data["stage"], data["branch"]) == (
        "002-another",
        "working",
        "feat/002-another",
    )


@pytest.mark.demand("W6.b", "W4.a", "W4.d", "W3.a", "W6.f", "N7.i", "N8.m")
def test_a_workflow_is_taken_step_by_step_to_its_merge(tmp_path: Path) -> None:
    project = note_project(tmp_path)
    project.play(says("challenge", "NEEDS_REVISION", round=1), WRITES, *APPROVES, ARCHIVES)
    failed = project.call("run", "note", DESCRIPTION, "--step")
    assert failed.code == 1
    assert blocks_in(failed.stdout)[1:] == [
        ("Review gate failure details", "Retry gate check", "Escalate to human")
    ]
    assert "phasegate retry" in failed.stderr
    assert blocks_in(project.command("next").stdout) == blocks_in(failed.stdout)[1:]
    expect_refusal(project.call("advance"), 4, "GATE-01 has not passed")
    expect_refusal(project.call("complete"), 4, "the gate of its last phase has not passed")
    assert project.call("retry").code == 0
    expect_refusal(project.call("retry"), 4, "no gate has failed")
    checked = project.call("gate")
    assert checked.code == 1
    assert checked.stdout.startswith("GATE-01 NOT READY: 01-requirements is still in progress\n")
    assert blocks_in(checked.stdout) == [
        (
            "Run Phase 01 - Requirements",
            "Review requirements documents",
            "Show workflow status",
        )
    ]
    assert "there is no verdict" in checked.stderr
    passed = project.call("run", "--step")
    assert (passed.code, passed.stdout.count("GATE-01 PASSED")) == (0, 1)
    assert blocks_in(passed.stdout) == [
        (
            "Continue to Phase 08 - Code Review",
            "Review requirements artifacts",
            "Show workflow status",
        )
    ]
    assert "phasegate advance" in passed.stderr
    assert project.call("gate", "--json").json == {
        "gate": "GATE-01",
        "outcome": "passed",
        "reasons": [],
    }
    by_hand = project.call("gate")
    assert (by_hand.code, by_hand.stdout.splitlines()[0]) == (0, "GATE-01 PASSED")
    assert blocks_in(by_hand.stdout) == blocks_in(passed.stdout)
    advanced = project.call("advance")
    assert (advanced.code, advanced.stdout) == (0, "")
    assert project.feature().workflow.phase == "08-code-review"
    assert project.call("run").code == 0
    expect_refusal(project.call("advance"), 4, "complete the workflow")
    assert project.call("complete").code == 0
    assert project.feature().workflow.stage is Stage.COMPLETED
    expect_refusal(project.call("run"), 4, "no workflow is active")
    expect_refusal(
        project.call("complete", "--feature", SLUG), 4, f"feature {SLUG} has no active workflow"
    )


@pytest.mark.demand("W4.b", "W4.c", "N7.e", "N7.g", "W6.f")
def test_escalate_resolve_and_cancel_tell_why_and_keep_the_branches(tmp_path: Path) -> None:
    project = note_project(tmp_path)
    assert project.call("run", "note", DESCRIPTION, "--step").code == 0
    expect_refusal(project.call("resolve", "what"), 4, "nothing is blocked")
    expect_refusal(project.call("escalate", " "), 4, "an escalation needs a reason")
    stopped = project.call("escalate", "the key is missing")
    assert blocks_in(stopped.stdout) == [BLOCKER]
    assert "the key is missing" in stopped.stderr
    assert 'phasegate resolve "how"' in stopped.stderr
    again = project.call("run")
    assert (again.code, again.stdout) == (1, "")  # no new event of the lifecycle, so no block
    assert "the key is missing" in again.stderr
    expect_refusal(project.call("escalate", "once more"), 4, "the workflow is blocked")
    expect_refusal(project.call("resolve", "how"), 2, "in place of the placeholder")
    resolved = project.call("resolve", "it is there")
    assert (resolved.code, resolved.stdout) == (0, "")
    assert project.feature().workflow.stage is Stage.GATE_PASSED
    assert project.call("cancel").code == 2
    expect_refusal(project.call("cancel", "--reason", " "), 4, "a cancellation needs a reason")
    cancelled = project.call("cancel", "--reason", "enough")
    assert cancelled.code == 0
    assert blocks_in(cancelled.stdout) == [("Start a new feature", "View project status")]
    assert f"kept: feat/{SLUG}" in cancelled.stderr
    assert f"feat/{SLUG}" in project.branches()
    assert project.state() is None
    assert project.left_over() == set()
    expect_refusal(project.call("cancel", "--reason", "x"), 4, "no workflow is active")


@pytest.mark.demand("W4.b", "W3.d", "W3.e")
def test_no_round_of_a_phase_has_the_number_of_another_also_after_resolve(tmp_path: Path) -> None:
    project = note_project(tmp_path, "[run]\nmax_revisions = 2\n")
    project.play(
        *(says("challenge", "NEEDS_REVISION", round=n) for n in (1, 2, 3)),
        WRITES,
        *APPROVES,
        ARCHIVES,
    )
    stopped = project.call("run", "note", DESCRIPTION)
    assert (stopped.code, "all 2 rounds are used up" in stopped.stderr) == (1, True)
    assert project.call("resolve", "leave out the login").code == 0
    assert project.call("status").stdout.startswith(
        f"note {SLUG}: Phase 01 - Requirements, round 3\n"
    )
    done = project.call("run")
    assert done.code == 0, done.stderr
    told = [line for line in (stopped.stderr + done.stderr).splitlines() if ", plan by " in line]
    assert told == [f"01-requirements: round {n}, plan by actor" for n in (1, 2, 3, 4)]
    assert [job.round for job in project.jobs() if job.phase == "challenge"] == [1, 2, 3, 4]
    assert [gate.round for gate in project.gates() if gate.phase == "01-requirements"] == [
        1,
        2,
        3,
        4,
    ]
    shown = [re.findall(r"- round: (\d of \d)", prompt) for prompt in project.prompts("plan")]
    assert shown == [["1 of 2"], ["2 of 2"], ["3 of 4"], ["4 of 4"]]
    third = project.prompts("plan")[2]
    assert "findings-2.md" in third
    assert "The user decided: leave out the login" in third
    assert "the first round" not in third


@pytest.mark.demand("W4.f", "W4.g", "W4.e")
def test_two_features_at_once_are_told_apart_and_the_one_chosen_last_is_shown(
    tmp_path: Path,
) -> None:
    project = note_project(tmp_path)
    one, other = project.start("note", "First thing"), project.start("note", "Second thing")
    assert (one, other) == ("001-first-thing", "002-second-thing")
    assert _shown(project) == other
    assert project.call("run", "--step", "--feature", one).code == 0
    assert _shown(project) == one
    assert project.feature(other).workflow.stage is Stage.WORKING
    assert project.call("escalate", "not now", "--feature", other).code == 0
    assert _shown(project) == other
    assert project.call("run", "--feature", one).code == 0  # to its last gate
    assert (
        project.call("run", "--feature", one).code == 0
    )  # nothing moves, and it is chosen all the same
    assert _shown(project) == one
    expect_refusal(
        project.call("run", "--feature", "009-none"), 4, "has no active workflow", one, other
    )
    assert project.call("cancel", "--reason", "no", "--feature", one).code == 0
    assert project.feature(one).workflow.stage is Stage.CANCELLED
    assert _shown(project) == other  # the one that is left
    assert project.call("resolve", "now").code == 0
    assert project.feature(other).workflow.stage is Stage.WORKING


@pytest.mark.demand("W4.j")
def test_among_several_features_no_order_is_guessed_and_each_hint_can_be_typed(
    tmp_path: Path,
) -> None:
    project = note_project(tmp_path)
    one, other = project.start("note", "First thing"), project.start("note", "Second thing")
    seq = [project.happened(slug) for slug in (one, other)]
    orders = (
        ["run"],
        ["gate"],
        ["advance"],
        ["retry"],
        ["escalate", "x"],
        ["resolve", "x"],
        ["complete"],
    )
    for order in (*orders, ["cancel", "--reason", "x"]):
        expect_refusal(
            project.call(*order),
            4,
            "several features are active",
            f"choose with --feature: {one}, {other}",
        )
    expect_refusal(
        project.call("run", "--feature", "00"),
        2,
        "several features start with 00",
        f"{one}, {other}",
    )
    assert [project.happened(slug) for slug in (one, other)] == seq, "nothing was ordered"
    blocked = project.call("escalate", "not now", "--feature", "002")
    then = f'then: phasegate resolve "how" --feature {other}, and phasegate run --feature {other}'
    assert then in blocked.stderr
    assert then in project.command("status").stdout
    assert (
        project.command("status", "--feature", "002", "--json").json["workflow"]["feature"] == other
    )
    assert (
        f"then: phasegate run --feature {one}\n"
        in project.command("status", "--feature", "001").stdout
    )
    assert project.call("cancel", "--reason", "no", "--feature", "001-f").code == 0
    alone = project.command("status").stdout  # the control: with one in work nothing need be named
    assert 'then: phasegate resolve "how", and phasegate run\n' in alone
    assert project.call("resolve", "now").code == 0


@pytest.mark.demand("W4.l")
def test_what_a_person_says_in_resolve_reaches_every_later_agent_wherever_the_feature_stood(
    tmp_path: Path,
) -> None:
    project = note_project(tmp_path)
    project.start("note")

    def resolved(words: str) -> None:
        assert project.call("escalate", "a question").code == 0
        assert project.call("resolve", words).code == 0

    resolved("count in metres")  # before anything was done
    assert project.call("run", "--step").code == 0
    resolved("and in feet")  # behind a passed gate
    assert project.call("run").code == 0
    resolved("name the customer")  # behind the last gate
    assert project.call("complete").code == 0
    plan, challenge, review, archive = (
        project.prompts(role)[-1] for role in ("plan", "challenge", "review", "archive")
    )
    first, second, last = "count in metres", "and in feet", "name the customer"
    for prompt, decisions in (
        (plan, [first]),
        (challenge, [first]),
        (review, [first, second]),
        (archive, [first, second, last]),
    ):
        assert "The user has made a decision about this feature (decision.md)" in prompt
        assert "\n".join(("The user decided: " + decisions[0], *decisions[1:], "")) in prompt
    assert second not in challenge, "control: nobody had said it then"


@pytest.mark.demand("W4.k", "W4.l")
def test_a_feature_goes_back_to_its_packages_and_to_its_plan_with_the_reason(
    tmp_path: Path,
) -> None:
    project = make_feature_project(tmp_path)
    phases = WORKFLOWS["quick"]
    tasks = TASKS.replace("say how to use it", "say how to use it politely")
    bye, polite = file("bye.py", f"# asked\n{BYE}"), file("docs.md", "Please call bye.\n")
    again = [document(name) for name in required_artifacts(phases[0], phases) if name != "tasks.md"]
    plans_again = turn("plan", *again, document("tasks.md", tasks), SAYS_PASS, round=2)
    project.play(plans_again, builds("WP03", bye), builds("WP04", polite), *smooth(phases))
    assert project.call("start", "quick", DESCRIPTION).code == 0
    expect_refusal(
        project.call("back", "06", "why"),
        4,
        "06-implementation is not before 01-requirements",
        "first phase",
    )
    assert project.call("run").code == 0
    expect_refusal(
        project.call("back", "nowhere", "why"),
        4,
        "nowhere is not before",
        "earlier phases: 01-requirements",
    )
    expect_refusal(project.call("back", "06", " "), 4, "going back needs a reason")
    assert "back" in project.command("status", "--json").json["waiting"][0]["orders"]

    done = project.call("back", "implementation", "errors need a line")
    assert (done.code, "back to 06-implementation: errors need a line" in done.stderr) == (0, True)
    expect_refusal(project.call("complete"), 4, "the gate of its last phase has not passed")
    assert project.call("run").code == 0
    assert {name for name, row in project.packages().items() if row.state == "DONE"} == {
        "WP01",
        "WP02",
        "WP03",
    }
    assert project.show(f"feat/{SLUG}", "bye.py").startswith("# asked")
    for role in ("implement", "review"):
        assert "The user decided: errors need a line\n" in project.prompts(role)[-1]

    assert project.call("back", "01", "be polite").code == 0
    assert project.call("run", "--merge").code == 0
    for role in ("plan", "challenge", "implement", "review", "archive"):
        prompt = project.prompts(role)[-1]
        assert "The user decided: errors need a line\nbe polite\n" in prompt, role
    begun = sorted(job.wp for job in project.jobs() if job.phase == "implement")
    assert begun == ["WP01", "WP02", "WP03", "WP04"], "only what the new plan changes is done again"
    assert project.show("main", "docs.md") == "Please call bye.\n"
    assert project.feature().workflow.stage is Stage.COMPLETED
    assert project.audit_problems() == []
    expect_refusal(
        project.call("back", "01", "too late", "--feature", "001"), 4, "has no active workflow"
    )


def _shown(project: FeatureProject) -> str:
    state = project.state()
    assert isinstance(state, dict)
    return str(state["artifact_folder"])


@pytest.mark.demand("W4.h")
def test_a_feature_in_work_is_not_touched_by_another_process(tmp_path: Path) -> None:
    project = note_project(tmp_path)
    project.start("note")
    with feature_lock(project.project.location.locks_folder, SLUG, "run", project.project.now()):
        expect_refusal(project.call("escalate", "why"), 4, f"feature {SLUG} is already running")
        assert project.call("start", "note", "another thing").code == 0


@pytest.mark.demand("W6.f", "W4.a")
def test_json_is_data_and_nothing_else(tmp_path: Path) -> None:
    project = note_project(tmp_path)
    done = project.call("run", "note", DESCRIPTION, "--json")
    data = json.loads(done.stdout)
    assert (done.code, data["stage"], data["phase"]) == (0, "gate-passed", "08-code-review")
    cancelled = project.call("cancel", "--reason", "no", "--json").json
    assert cancelled == {"feature": SLUG, "stage": "cancelled", "kept": [f"feat/{SLUG}"]}


DEPLOY = '[workflows.ship]\nphases = ["13-test-deploy"]\n'
COMMANDS = '[phases."13-test-deploy"]\ncommands = ["echo deployed"]\n'


@pytest.mark.demand("W7.g", "W7.f")
def test_commands_that_a_stop_asks_for_are_run_in_the_workflow_that_was_stopped(
    tmp_path: Path,
) -> None:
    project = make_feature_project(tmp_path, config=DEPLOY)
    stopped = project.call("run", "ship", DESCRIPTION)
    assert stopped.code == 1
    assert 'commands = ["..."] in [phases."13-test-deploy"]' in stopped.stderr
    with (project.root / "phasegate.toml").open("a") as config:
        config.write(COMMANDS)
    assert project.call("resolve", "the commands are set").code == 0
    done = project.call("run")
    assert done.code == 0, done.stderr
    review = project.show(f"feat/{SLUG}", f"kitty-specs/{SLUG}/REVIEW-13.md")
    assert "echo deployed passed" in review
    assert "Attested" not in review


@pytest.mark.demand("W7.a", "W7.b", "P7.b")
def test_roles_by_phase_and_by_kind_of_work_are_served_by_whom_the_person_names(
    tmp_path: Path,
) -> None:
    scenario = json.dumps(str(tmp_path / "scenario.json"))
    agents = "".join(
        f'[agents.{name}]\nharness = "scripted"\nscenario = {scenario}\n'
        for name in ("ann", "bob", "cyd")
    )
    roles = '[roles]\n"04-design" = "cyd"\nchallenge = "bob"\n'
    flow = '[workflows.two]\nphases = ["01-requirements", "04-design"]\n'
    project = make_feature_project(tmp_path, config=roles + flow, agents=agents)
    phases = ("01-requirements", "04-design")
    project.play(*(plans(key, phases) for key in phases), *APPROVES)
    project.start("two")
    project.drive()
    assert [(job.phase, job.agent) for job in project.jobs()] == [
        ("plan", "ann"),
        ("challenge", "bob"),
        ("plan", "cyd"),
        ("challenge", "bob"),
    ]


CYCLE = """\
# Tasks

- [ ] 1.1 One
  - File: one.py
  - Do: one.
  - Depends: 1.2
- [ ] 1.2 Two
  - File: two.py
  - Do: two.
  - Depends: 1.1
"""
DUPLICATE = "- [ ] 1.1 One\n  - File: one.py\n  - Do: one.\n- [ ] 1.1 Again\n  - File: two.py\n  - Do: two.\n"
DANGLING = "- [ ] 1.1 One\n  - File: one.py\n  - Do: one.\n  - Depends: 3.9\n"


@pytest.mark.demand("W7.l", "W3.c", "D5.g")
def test_tasks_that_cannot_work_go_back_to_the_writer_with_the_reasons(tmp_path: Path) -> None:
    flow = '[workflows.planned]\nphases = ["01-requirements", "06-implementation"]\n[run]\nmax_revisions = 4\n'
    project = make_feature_project(tmp_path, config=flow)
    bad = {1: CYCLE, 2: DUPLICATE, 3: DANGLING}
    others = [document(name) for name in ("proposal.md", "spec.md")]
    rounds = [
        turn("plan", *others, document("tasks.md", text), SAYS_PASS, round=n)
        for n, text in bad.items()
    ]
    project.play(
        *rounds, plans("01-requirements", ("01-requirements", "06-implementation")), *APPROVES
    )
    project.start("planned")
    for _ in range(4):
        project.drive(stop_at_gates=True)
    outcomes = [(gate.round, gate.outcome) for gate in project.gates()]
    assert outcomes == [(1, "failed"), (2, "failed"), (3, "failed"), (4, "passed")]
    assert all("plan of tasks failed" in gate.reasons for gate in project.gates()[:3])
    _, second, third, fourth = project.prompts("plan")
    assert "1.1 -&gt; 1.2" in second or "1.1 -> 1.2" in second
    assert "tasks.md, line 7" in third
    assert "3.9" in fourth
    assert project.packages() == {}


PLANNED = (
    '[workflows.planned]\nphases = ["01-requirements", "06-implementation"]\n[run]\nparallel = 1\n'
)
GIVES_UP = turn(
    "implement", {"result": "blocked", "blocked_reason": "no credentials"}, package="WP01"
)


@pytest.mark.demand("W3.g", "W4.b", "D5.b", "D5.c")
def test_a_blocked_package_stops_the_workflow_and_is_tried_again_after_resolve(
    tmp_path: Path,
) -> None:
    project = make_feature_project(tmp_path, config=PLANNED)
    project.play(GIVES_UP, *smooth(("01-requirements", "06-implementation")))
    stopped = project.call("run", "planned", DESCRIPTION)
    assert stopped.code == 1
    assert blocks_in(stopped.stdout)[-1] == BLOCKER
    assert "blocked: WP01 (no credentials)" in stopped.stderr
    assert project.packages()["WP02"].state == "DONE"  # the other one was let end
    project.play(*smooth(("01-requirements", "06-implementation")))
    project.git("checkout", "-q", "--detach")  # the person may be anywhere meanwhile
    assert project.call("resolve", "gave it credentials").code == 0
    assert project.call("run").code == 0
    assert {row.state for row in project.packages().values()} == {"DONE"}
    told = [project.prompt(job.id) for job in project.jobs() if job.wp == "WP01"]
    # The first round had no blocker; the reason is data, and reviewers are not concerned
    assert [("name='blocker.md'>no credentials" in text) for text in told] == [False, True, False]


@pytest.mark.demand("W5.a", "W3.g")
def test_a_package_that_was_blocked_while_nobody_looked_waits_for_a_person(tmp_path: Path) -> None:
    """The run died between the package's end and its own record of it: nobody has resolved anything."""
    project = make_feature_project(tmp_path, config=PLANNED)
    project.play(GIVES_UP, *smooth(("01-requirements", "06-implementation")))
    project.start("planned")
    project.drive(stop_at_gates=True)
    with open_project_store(project.project) as store:
        journal = open_feature_journal(project.project, store, SLUG)
        journal.record(Advanced())
        planned = FeatureSteps(project.project, SLUG).run(
            journal.state, StepContextReader(store, SLUG).read()
        )
        journal.record(*planned.events, rows=planned.rows)
        journal.record(PackageStarted("WP01"))
        one = find_package(store, "WP01", SLUG)
        report = dispatch_package(
            project.project, store, one, agent=None, report_line=lambda line: None
        )
        assert report.state is PackageState.BLOCKED
    feature = project.drive()
    assert (feature.workflow.stage, feature.packages["WP01"]) == (
        Stage.BLOCKED,
        PackageState.BLOCKED,
    )
    assert len([job for job in project.jobs() if job.wp == "WP01"]) == 1


@pytest.mark.demand("N8.m")
def test_next_at_a_blocker_shows_the_blockers_block(tmp_path: Path) -> None:
    one = make_feature_project(tmp_path)
    assert one.command("start", "quick", "Say bye").code == 0
    assert "[1] Run Phase 01" in one.command("next").stdout
    assert one.command("escalate", "the server is down").code == 0
    blockers = one.command("next", "--event", "blocker").stdout
    assert one.command("next").stdout == blockers != ""
    checked = one.command("gate")
    assert checked.stdout == f"GATE-01 NOT READY: 01-requirements is blocked\n{blockers}"
    assert checked.code == 1
    assert one.command("retry").code == 4, "the control: no gate check can be retried"
    assert one.command("resolve", "it is up again").code == 0
    assert "[1] Run Phase 01" in one.command("next").stdout


@pytest.mark.demand("W5.a")
def test_a_run_that_is_told_to_stop_ends_with_a_value_and_goes_on_later(tmp_path: Path) -> None:
    """No exception of any kind: whoever hosts the run lives on."""
    project = make_feature_project(tmp_path)
    project.start()
    opened = project.project
    opened.stop.set()
    with open_project_store(opened) as store:
        assert drive_feature(opened, store, SLUG) == Stopped(SLUG)
    assert project.jobs() == []
    assert project.feature().workflow.stage is Stage.WORKING


@pytest.mark.demand("W4.a")
def test_an_order_records_who_gave_it_and_through_which_door(tmp_path: Path) -> None:
    project = make_feature_project(tmp_path)
    assert project.call("start", "quick", "Say bye to people").code == 0
    assert project.call("escalate", "look here").code == 0
    started, escalated = project.happened()
    assert isinstance(started, Started)
    assert isinstance(escalated, Escalated)
    assert started.by == escalated.by == project.project.make_origin("cli")
    assert (started.by.door, bool(started.by.person)) == ("cli", True)


# The types of the specification, by the numbers of their phases.
TYPES = {
    "feature": "00 01 02 03 04 05 06 11 07 10 08",
    "fix": "01 02 05 06 11 07 10 08",
    "test-run": "11 07",
    "test-generate": "05 06 11 07 08",
    "full-lifecycle": "01 03 04 05 06 11 07 08 09 10 12 13 14 15",
    "upgrade": "16 16 08",
}
LISTED = (
    "type",
    "phases",
    "current_phase",
    "current_phase_index",
    "artifact_folder",
    "phase_status",
)


@pytest.mark.demand("W1.a", "W2.a", "W2.d")
def test_every_type_can_be_started_and_the_state_file_has_the_listed_fields(tmp_path: Path) -> None:
    remote = "".join(
        f'[phases."{key}"]\ncommands = ["true"]\n'
        for key in WORKFLOWS["full-lifecycle"]
        if key >= "12"
    )
    project = note_project(tmp_path, remote)
    for number, (type_, numbers) in enumerate(TYPES.items(), 1):
        done = project.call("start", type_, f"Thing {number}")
        assert done.code == 0, done.stderr
        state = project.state()
        assert isinstance(state, dict)
        assert [name for name in state if name in LISTED] == [*LISTED]
        assert [key[:2] for key in state["phases"]] == numbers.split()
        assert (state["type"], state["current_phase"], state["current_phase_index"]) == (
            type_,
            state["phases"][0],
            0,
        )
        assert state["artifact_folder"].startswith(f"{number:03}-")
        assert state["phase_status"] == dict.fromkeys(state["phases"], "pending") | {
            state["phases"][0]: "in_progress"
        }
    project.play(WRITES, *APPROVES[:1], says("review", "MAJOR_ISSUES"))
    assert project.call("run", "note", "Stop at the review").code == 1
    state = project.state()
    assert isinstance(state, dict)
    assert state["phase_status"] == {
        "01-requirements": "completed",
        "08-code-review": "in_progress",
    }


@pytest.mark.demand("W2.e")
def test_the_state_of_another_tool_is_read_as_it_is_and_kept(tmp_path: Path) -> None:
    project = note_project(tmp_path)
    active = '{"phases" : ["03-architecture","04-design"],"x":1, "current_phase_index":0}'
    foreign = f'{{"history": [1], "active_workflow":{active}}}'
    (project.root / ".isdlc").mkdir()
    (project.root / ".isdlc/state.json").write_text(foreign)
    said = project.command("next")
    assert blocks_in(said.stdout) == [
        ("Continue to Phase 04 - Design", "Review architecture and ADRs", "Show workflow status")
    ]
    assert project.call("status").code == 0
    assert (project.root / ".isdlc/state.json").read_text() == foreign
    assert project.call("start", "note", DESCRIPTION).code == 0
    assert (project.root / ".isdlc/state.json.kept").read_text() == foreign


@pytest.mark.demand("W3.d", "W3.e")
def test_planning_has_three_rounds_where_nothing_is_set(tmp_path: Path) -> None:
    project = note_project(tmp_path)
    project.play(WRITES, says("challenge", "NEEDS_REVISION", "It is too thin in round {round}."))
    stopped = project.call("run", "note", DESCRIPTION)
    assert (stopped.code, "all 3 rounds are used up" in stopped.stderr) == (1, True)
    assert [job.round for job in project.jobs() if job.phase == "challenge"] == [1, 2, 3]


@pytest.mark.demand("D1.f")
def test_the_envelope_of_a_planning_run_names_no_package(tmp_path: Path) -> None:
    program = tmp_path / "agent.sh"
    program.write_text('printf "ENVELOPE %s\\n" "$(cat)"\nexit 1\n')
    agents = f'[agents.actor]\nharness = "command"\ncommand = {json.dumps(["/bin/sh", str(program)])}\nmax_retries = 0\n'
    project = make_feature_project(tmp_path, config=NOTE, agents=agents)
    assert project.call("run", "note", DESCRIPTION).code == 1
    job = project.jobs()[0]
    text = (project.project.jobs_folder / job.id / "stdout.log").read_text(encoding="utf-8")
    envelope = json.loads(text.partition("ENVELOPE ")[2].partition("\n")[0])
    assert (envelope["wp_id"], envelope["wp_sequence"]) == (None, 0)
    assert envelope["feature_slug"] == SLUG


@pytest.mark.demand("P6.f")
def test_a_planning_writer_needs_no_marker_and_its_own_doubt_means_not_ready(
    tmp_path: Path,
) -> None:
    project = note_project(tmp_path)
    silent = {**WRITES, "steps": WRITES["steps"][:-1]}
    assert SAYS_PASS in WRITES["steps"]
    assert SAYS_PASS not in silent["steps"]
    doubt = {"print": "I do not know who may say it."}
    doubts = {
        **silent,
        "round": 1,
        "steps": [*silent["steps"], doubt, {"verdict": "NEEDS_REVISION"}],
    }
    project.play(doubts, silent, *APPROVES, ARCHIVES)
    done = project.call("run", "note", DESCRIPTION)
    assert done.code == 0, done.stderr
    assert [
        (gate.round, gate.outcome) for gate in project.gates() if gate.phase == "01-requirements"
    ] == [
        (1, "failed"),
        (2, "passed"),
    ]
    assert "I do not know who may say it." in project.prompts("plan")[1]
