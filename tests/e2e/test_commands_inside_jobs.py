"""What agents are told to run, they can run: in every phase, inside a real job, with the answers that a person gets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from phasegate.core.workflow.phase_transitions import Stage
from phasegate.core.workflow.phases import PHASES, PhaseWork
from phasegate.engine.journal.package import load_plan
from phasegate.engine.project.project import open_project_store
from support.dispatch_project import (
    FEATURE,
    FILES,
    DispatchProject,
    Turn,
    approves,
    implements,
    make_project,
    package,
    turn,
)
from support.dispatch_project import SLUG as DISPATCH_SLUG
from support.feature_project import SLUG, FeatureProject, make_feature_project, smooth

# Reads its own prompt as an agent does, and runs every command of ours that is named there, and these.
PLAY = r"""
import html, json, os, re, subprocess, sys
text = html.unescape(open(os.environ["AGILEPLUS_PROMPT"], encoding="utf-8").read()).replace("\\\n", " ")
named = re.findall(r"`((?:phasegate|agileplus) [a-z][^`\n]*)`", text)
blocks = re.findall(r"^((?:phasegate|agileplus) [a-z].*)$", text, re.M)
for command in dict.fromkeys([*named, *blocks, *sys.argv[1:]]):
    command = command.replace("{NNN-slug}", os.environ["SLUG"])
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    print("RAN", json.dumps([command, done.returncode, done.stdout, done.stderr]))
print("STATE", json.dumps(json.load(open(".isdlc/state.json", encoding="utf-8"))))
"""
# Together all phases; packages are made once in a workflow.
BUILDING = tuple(key for key in PHASES if key < "12")
UPGRADING = (
    "01-requirements",
    "16-upgrade-plan",
    "16-upgrade-execute",
    *(key for key in PHASES if "12" < key < "16"),
)
NOBODY_ANSWERS = (
    "question_timeout_s = 1"  # what an agent asks a person: it is told to decide itself
)
OWN_PHASE = "phasegate next --phase $PHASEGATE_WORKFLOW_PHASE"
ALWAYS = ("phasegate next", "agileplus status", OWN_PHASE)


def playing(turns: list[Turn], slug: str, *also: str) -> list[Turn]:
    """The same turns, each with a run of all commands before its last words."""
    step = {"run": ["env", f"SLUG={slug}", "python3", "-c", PLAY, *ALWAYS, *also]}
    return [{**one, "steps": [*one["steps"][:-1], step, *one["steps"][-1:]]} for one in turns]


def ran(
    project: FeatureProject | DispatchProject, job: str
) -> tuple[dict[str, tuple[int, str, str]], Any]:
    """What each command answered inside a job, and the state that lay there."""
    lines = (
        (project.project.jobs_folder / job / "stdout.log").read_text(encoding="utf-8").splitlines()
    )
    found = [json.loads(line[4:]) for line in lines if line.startswith("RAN ")]
    (state,) = [json.loads(line[6:]) for line in lines if line.startswith("STATE ")]
    return {command: (code, out, err) for command, code, out, err in found}, state


@pytest.mark.demand("D14.d", "D14.g", "D14.h", "N10.k")
@pytest.mark.parametrize(
    "phases", [BUILDING, pytest.param(UPGRADING, marks=pytest.mark.long)], ids=["build", "upgrade"]
)
def test_every_command_that_a_shipped_prompt_names_is_answered_inside_the_job(
    tmp_path: Path, phases: tuple[str, ...]
) -> None:
    with_commands = [key for key in phases if PHASES[key].work is PhaseWork.COMMANDS]
    commands = "".join(f'[phases."{key}"]\ncommands = ["true"]\n' for key in with_commands)
    flow = f"[run]\n{NOBODY_ANSWERS}\n[workflows.every]\nphases = {json.dumps(phases)}\n{commands}"
    project = make_feature_project(tmp_path, config=flow)
    project.play(*playing(smooth(phases), SLUG))
    assert project.call("run", "every", "Say bye to people").code == 0
    assert project.feature().workflow.stage is Stage.GATE_PASSED
    jobs, asked = project.jobs(), []
    # The exit status of a command line that a person configured is judged by a reviewer
    assert {job.workflow_phase for job in jobs} == set(phases)
    for job in jobs:
        answers, state = ran(project, job.id)
        assert [(command, *rest) for command, rest in answers.items() if rest[0]] == [], (
            job.workflow_phase
        )
        assert answers[OWN_PHASE][1].startswith("---\nSUGGESTED NEXT STEPS:\n  [1] C")
        assert answers["phasegate next"][1].startswith("---\nSUGGESTED NEXT STEPS:\n")
        assert SLUG in answers["agileplus status"][1]
        asked += [out for command, (_, out, _) in answers.items() if " ask " in command]
        active = state["active_workflow"]
        assert (active["artifact_folder"], active["current_phase"]) == (SLUG, job.workflow_phase)
    assert asked
    assert all("Decide yourself" in out for out in asked)
    assert project.git("status", "--porcelain") in ("", "?? kitty-specs/")
    assert not [path for path in project.files_of(f"feat/{SLUG}") if ".isdlc" in path]


@pytest.mark.demand("D14.d", "D14.g")
def test_inside_a_job_the_answers_are_those_of_a_person_and_of_its_own_feature_alone(
    tmp_path: Path,
) -> None:
    documents = {"WP01": package(), "WP02": package("WP02", ["src/b.ts"], dependencies=["WP01"])}
    project = make_project(tmp_path, documents, run=NOBODY_ANSWERS)
    other = project.root / "kitty-specs/002-secret-plans/tasks"
    other.mkdir(parents=True)
    text = package(title="Hidden title").replace(DISPATCH_SLUG, "002-secret-plans")
    (other / "WP01.md").write_text(text)
    with open_project_store(project.project) as store:
        load_plan(project.project, store, other.parent)
    asked = (
        "phasegate status WP01",
        "phasegate status WP99",
        "phasegate worktree list --all",
        "phasegate resolve x",
        "phasegate check",
        "phasegate ask --help",
        "phasegate spec check kitty-specs",
        "git rev-parse base",
    )
    foreign = "agileplus artifact list --feature-slug 002-secret-plans"
    report = f"agileplus artifact write --feature-slug {DISPATCH_SLUG} --relative-path WP01/t.txt --content ok"
    project.play(
        *playing([implements("src/login.ts")], DISPATCH_SLUG, *asked, foreign, report), approves()
    )
    assert project.command("dispatch", "WP01", "--feature", DISPATCH_SLUG).code == 0
    answers, state = ran(project, project.jobs()[0].id)
    assert state == {"active_workflow": None}
    person = project.command("worktree", "list", "--all", "--feature", DISPATCH_SLUG).stdout
    assert [line.split() for line in person.splitlines()][1] == [
        line.split() for line in answers["phasegate worktree list --all"][1].splitlines()
    ][1]
    assert answers["phasegate status WP01"][1].startswith(f"{DISPATCH_SLUG}  WP01  DOING")
    refused = project.command("status", "WP99", "--feature", DISPATCH_SLUG)
    assert answers["phasegate status WP99"][0] == refused.code == 2
    assert "there is no package WP99" in answers["phasegate status WP99"][2]
    assert answers["phasegate resolve x"][0] == 2
    assert answers["phasegate check"][:2] == (0, "test: test -e src/login.ts\n") or answers[
        "phasegate check"
    ][1].startswith("test: ")
    assert answers["phasegate ask --help"][1].startswith("  ask ")
    assert answers["phasegate spec check kitty-specs"][0] in (0, 1), "a folder is checked"
    assert "directory" not in answers["phasegate spec check kitty-specs"][2]
    assert answers["git rev-parse base"][1].strip() == project.git("rev-parse", "main").strip()
    assert answers[foreign] == (2, "", f"phasegate: this job belongs to {DISPATCH_SLUG}\n")
    assert answers[report][:2] == (0, f"wrote kitty-specs/{DISPATCH_SLUG}/WP01/t.txt (2 bytes)\n")
    shown = "".join(out + err for command, (_, out, err) in answers.items() if command != foreign)
    assert "secret-plans" not in shown
    assert "Hidden title" not in shown
    assert "None" not in shown


# Speaks to the job's tools, asks the same at the shell, looks at its git directory, and leaves files behind.
LOOKS = r"""
import json, pathlib, subprocess, sys
def said(*words): return subprocess.run(words, capture_output=True, text=True).stdout
calls = {
    "status": {"package": "WP01"}, "worktree_list": {"all": True}, "artifact_list": {},
    "artifact_write": {"path": "WP01/t.txt", "content": "kept"}, "artifact_read": {"path": "WP01/t.txt"},
}
asks = [{"method": "initialize", "params": {"protocolVersion": "2025-06-18"}}, {"method": "tools/list"}]
asks += [{"method": "tools/call", "params": {"name": name, "arguments": given}} for name, given in calls.items()]
server, answers = subprocess.Popen(["phasegate", "mcp"], stdin=-1, stdout=-1, text=True), []
for number, ask in enumerate(asks):  # one at a time: the next may need what this one did
    server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, **ask}) + "\n")
    server.stdin.flush()
    answers.append(json.loads(server.stdout.readline())["result"])
server.communicate()
print("TOLD", json.dumps({
    "tools": [tool["name"] for tool in answers[1]["tools"]],
    "mcp": {name: answer["content"][0]["text"] for name, answer in zip(calls, answers[2:])},
    "shell": {
        "status": said("phasegate", "status", "WP01"), "worktree_list": said("phasegate", "worktree", "list", "--all")
    },
    "git": said("git", "rev-parse", "--absolute-git-dir").strip(),
    "at": str(pathlib.Path.cwd()),
}))
for path in sys.argv[1:]:
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_text("x")
pathlib.Path(".git/info").mkdir(exist_ok=True)
pathlib.Path(".git/info/exclude").write_text("hidden.txt\n")
"""


@pytest.mark.demand("D14.f", "D4.f", "D6.j")
def test_a_job_has_its_commands_as_tools_a_git_of_its_own_and_the_ignore_rules_of_the_base(
    tmp_path: Path,
) -> None:
    project = make_project(tmp_path, files={**FILES, ".gitignore": "*.log\n/build/\n"})
    ignored, work = {"src/noise.log", "build/out.o"}, implements("src/login.ts")
    look = {"run": ["python3", "-c", LOOKS, *ignored, "hidden.txt"]}
    project.play({**work, "steps": [look, *work["steps"]]}, approves())
    assert project.command("dispatch", "WP01").code == 1
    reason = project.rows()["WP01"].reason
    assert reason == "File scope violation: hidden.txt: added, but not in the file scope", (
        "it was hidden by the agent"
    )
    text = (project.project.jobs_folder / project.jobs()[0].id / "stdout.log").read_text(
        encoding="utf-8"
    )
    told = json.loads(text.partition("TOLD ")[2].partition("\n")[0])
    assert told["tools"] == [
        "status",
        "worktree_list",
        "artifact_write",
        "artifact_read",
        "artifact_list",
        "ask",
    ]
    for door in ("mcp", "shell"):
        told[door] = {name: re.sub(r"\d+ s ago", "now", text) for name, text in told[door].items()}
    assert {name: told["mcp"][name] for name in told["shell"]} == told["shell"], "as at the shell"
    assert told["shell"]["status"].startswith(f"{DISPATCH_SLUG}  WP01  DOING")
    assert (
        told["mcp"]["artifact_write"] == f"wrote kitty-specs/{DISPATCH_SLUG}/WP01/t.txt (4 bytes)\n"
    )
    assert told["mcp"]["artifact_read"] == "kept"
    assert f"kitty-specs/{DISPATCH_SLUG}/tasks/WP01.md" in told["mcp"]["artifact_list"]
    assert told["git"] == f"{told['at']}/.git"
    assert Path(told["at"]) != project.root
    project.play(turn("implement", {"result": "success"}), approves())
    assert (
        project.command("scope", "allow", "WP01", "hidden.txt", "--reason", "It is wanted").code
        == 0
    )
    assert project.command("dispatch", "WP01").code == 0
    assert "hidden.txt" in project.files_of(FEATURE)
    assert not ignored & project.files_of(FEATURE)
    assert "WP01: Write what is due" in project.git("log", "--format=%s", FEATURE), (
        "the agent committed there"
    )
