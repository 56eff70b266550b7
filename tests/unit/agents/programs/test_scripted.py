"""The scripted agent: scenarios that are right, scenarios that are wrong, and every step played for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from phasegate.agents.envelope import AgentShare
from phasegate.agents.port import AgentConfig, AgentReport, Ending, FinishedRun, get_harness
from phasegate.agents.scripted.scenario import load_scenario
from phasegate.errors import ConfigError
from support.agents import carry_out
from support.agents import reported as reported_by
from support.checkout import git, repository
from support.tasks import JOB_ID, make_task

# Real processes or a model check: in `make test`, not in `make test-fast`.
pytestmark = pytest.mark.slow

SCRIPTED = get_harness("scripted")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo", {"old.txt": "old\n"})


def play(checkout: Path, scenario: str, **where: object) -> FinishedRun:
    path = checkout.parent / "scenario.toml"
    path.write_text(scenario)
    task = make_task(checkout, AgentConfig("actor", scenario=str(path)), kind="scripted", **where)  # type: ignore[arg-type]
    return carry_out(SCRIPTED.launch(task), checkout)


def turn(*steps: str, head: str = "") -> str:
    return f"[[turns]]\n{head}\nsteps = [\n{','.join(steps)}\n]\n"


@pytest.mark.demand("D3.i")
def test_a_whole_turn_is_played_in_order(checkout: Path) -> None:
    finished = play(
        checkout,
        turn(
            '{ write = "src/deep/a.py", content = "a\\n" }',
            '{ append = "src/deep/a.py", content = "b\\n" }',
            '{ delete = "old.txt" }',
            '{ print = "said" }',
            '{ print_stderr = "muttered" }',
            '{ run = "cat src/deep/a.py" }',
            '{ run = ["printf", "%s|", "a b", "c"] }',
            '{ commit = "{wp_id}: Do it" }',
            "{ sleep_s = 0.01 }",
            "{ exit = 3 }",
            '{ print = "never" }',
        ),
    )
    assert (finished.exit_status, finished.stderr) == (3, "muttered\n")
    assert finished.stdout == "said\na\nb\na b|c|"
    assert git(checkout, "log", "-1", "--format=%s") == "WP01: Do it"
    assert git(checkout, "show", "--name-status", "--format=", "HEAD").split() == [
        *("D", "old.txt", "A", "plan.md", "A", "prompt.xml", "A", "spec.md", "A", "src/deep/a.py"),
    ]


@pytest.mark.demand("D3.i")
def test_the_prompt_document_is_never_committed(checkout: Path) -> None:
    play(checkout, turn('{ write = "a.py", content = "a" }', '{ commit = "WP01: x" }'))
    assert "WP01.md" not in git(checkout, "ls-files")


def test_named_paths_alone_are_committed(checkout: Path) -> None:
    steps = (
        '{ write = "a.py", content = "a" }',
        '{ write = "b.py", content = "b" }',
        '{ commit = "x", paths = ["a.py"] }',
    )
    assert play(checkout, turn(*steps)).exit_status == 0
    assert git(checkout, "show", "--name-only", "--format=", "HEAD") == "a.py"


def test_known_names_are_filled_once_and_other_braces_survive(checkout: Path) -> None:
    text = '{"id": "{job_id}", "wp": "{wp_id}", "n": {}, "u": "{unknown}", "f": {feature_slug}, "r": "{round}{{kind}}"}'
    finished = play(checkout, turn(f"{{ print = '{text}' }}"))
    expected = f'{{"id": "{JOB_ID}", "wp": "WP01", "n": {{}}, "u": "{{unknown}}", "f": 001-user-login, "r": "1{{scripted}}"}}'
    assert finished.stdout == f"{expected}\n"


def test_what_a_value_brings_is_not_filled_again(checkout: Path) -> None:
    share = AgentShare(0, 2, ("{job_id}.py", "b.py"))
    finished = play(checkout, turn('{ print = "{assigned_deliverables}" }'), share=share)
    assert finished.stdout == "{job_id}.py\nb.py\n"


@pytest.mark.demand("D3.i")
def test_a_success_result_tells_what_was_really_done(checkout: Path) -> None:
    finished = play(
        checkout,
        turn(
            '{ write = "new.py", content = "x" }',
            '{ write = "old.txt", content = "y" }',
            '{ commit = "WP01: One" }',
            '{ result = "success", summary = "{wp_id} é \\"quoted\\"" }',
        ),
    )
    result = json.loads(finished.stdout)
    assert (result["job_id"], result["wp_id"], result["success"], result["status"]) == (
        JOB_ID,
        "WP01",
        True,
        "completed",
    )
    assert result["summary"] == 'WP01 é "quoted"'
    assert result["commits"] == [
        {"sha": git(checkout, "rev-parse", "HEAD"), "message": "WP01: One"}
    ]
    assert result["artifacts"]["files_created"] == ["new.py"]


@pytest.mark.demand("D3.i")
def test_a_blocked_result_has_its_own_fields_and_a_scenario_can_lie(checkout: Path) -> None:
    fields = 'blocked_reason = "File scope violation", remediation = "Ask {wp_id}"'
    step = (
        f'{{ result = "blocked", {fields}, commits = [{{ sha = "abc", message = "{{job_id}}" }}] }}'
    )
    result = json.loads(play(checkout, turn(step)).stdout)
    assert (result["success"], result["status"]) == (False, "blocked")
    assert result["blocked_reason"] == "File scope violation"
    assert result["remediation"] == "Ask WP01"
    assert result["commits"] == [{"sha": "abc", "message": JOB_ID}]


def test_markers_are_printed_in_their_exact_form(checkout: Path) -> None:
    finished = play(
        checkout, turn('{ task = "1.1", status = "FAILED" }', '{ verdict = "NEEDS_CHANGES" }')
    )
    assert (
        finished.stdout
        == '<task_status id="1.1">FAILED</task_status>\n<review>NEEDS_CHANGES</review>\n'
    )


def test_a_run_outside_a_package_has_a_null_id(checkout: Path) -> None:
    assert (
        json.loads(play(checkout, turn('{ result = "success" }'), package=None).stdout)["wp_id"]
        is None
    )


MANY = """
[[turns]]
phase = "review"
round = 2
steps = [{ print = "second review" }]
[[turns]]
phase = "review"
steps = [{ print = "review" }]
[[turns]]
phase = "06-implementation"
agent_index = [1, 2]
steps = [{ print = "the other agent" }]
[[turns]]
package = "WP01"
workflow_phase = "06-implementation"
steps = [{ print = "implementation" }]
"""


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"phase": "review", "number": 2}, "second review"),
        ({"phase": "review"}, "review"),
        ({}, "implementation"),
        ({"share": AgentShare(0, 2, ())}, "implementation"),
        ({"share": AgentShare(1, 2, ())}, "the other agent"),
    ],
)
def test_the_first_turn_that_fits_is_played(
    checkout: Path, where: dict[str, object], said: str
) -> None:
    assert play(checkout, MANY, **where).stdout == f"{said}\n"


def reported(checkout: Path, finished: FinishedRun) -> AgentReport:
    return reported_by(SCRIPTED, make_task(checkout, AgentConfig("actor")), finished)


def test_a_situation_without_a_turn_is_explained(checkout: Path) -> None:
    finished = play(checkout, turn(head='phase = "plan"\nround = 3'))
    assert "no turn matches phase implement" in finished.stderr
    assert "turn 1: phase plan, round 3" in finished.stderr
    report = reported(checkout, finished)
    assert report.ending is Ending.NOT_RUNNABLE
    assert "no turn matches" in report.reason


@pytest.mark.parametrize(
    ("step", "status", "message"),
    [
        ('{ run = "exit 5" }', 5, "step 1, run: 'exit 5' ended with 5"),
        ('{ run = "kill -9 $$" }', 70, "ended with -9"),
        ('{ run = ["no-such-program"] }', 70, "no-such-program"),
        ('{ delete = "missing" }', 70, "missing"),
        ('{ write = "old.txt/x", content = "" }', 70, "old.txt"),
        ('{ commit = "nothing", paths = ["old.txt"] }', 70, "commit"),
    ],
)
def test_a_step_that_fails_ends_the_turn_and_says_so(
    checkout: Path, step: str, status: int, message: str
) -> None:
    finished = play(checkout, turn(step, '{ print = "never" }'))
    assert (finished.exit_status, finished.stdout) == (status, "")
    assert message in finished.stderr


def test_a_run_that_may_fail_does_not_end_the_turn(checkout: Path) -> None:
    assert (
        play(checkout, turn('{ run = "exit 5", may_fail = true }', '{ print = "on" }')).stdout
        == "on\n"
    )


WRONG = [
    ("", "only `turns`, not nothing"),
    ("turns = 3", "not a list"),
    ("[[turn]]\nsteps = []", "only `turns`, not `turn`"),
    ("turns = [3]", "turn 1: a turn is a table"),
    ("\n\n[[turns]]\nphase = 'plan'", "scenario.toml:3: turn 1: `steps` is missing"),
    (turn(head="fase = 'plan'"), "unknown `fase`"),
    (turn(head="round = '1'"), "`round` must be a number"),
    (turn(head="round = true"), "`round` must be a number"),
    (turn(head="package = 1"), "`package` must be a text"),
    (turn(head="phase = []"), "`phase` must be a text"),
    (turn("3"), "turn 1, step 1: a step is a table"),
    (turn("{}"), "a step has exactly one of"),
    (turn("{ prnt = 'x' }"), "did you mean `print`?"),
    (turn("{ print = 'x', exit = 1 }"), "a step has exactly one of"),
    (turn("{ print = 'x' }", "{ write = 'x' }"), "step 2: `write` needs `content`, a string"),
    (turn("{ write = 'x', content = 'y', mode = 7 }"), "`write` does not take `mode`"),
    (turn("{ run = [] }"), "`run` must be a command"),
    (turn("{ run = [1] }"), "list of strings"),
    (turn("{ run = 'x', may_fail = 1 }"), "true or false"),
    (turn("{ exit = 256 }"), "whole number from 0 to 255"),
    (turn("{ exit = 1.5 }"), "whole number"),
    (turn("{ exit = true }"), "whole number"),
    (turn("{ sleep_s = -1 }"), "number from 0"),
    (turn("{ sleep_s = nan }"), "number from 0"),
    (turn("{ verdict = 'GREAT' }"), "must be one of PASS"),
    (turn("{ result = 'maybe' }"), "must be one of success, blocked"),
    (turn("{ result = 'success', sumary = 'x' }"), "does not take `sumary`"),
    (turn("{ result = 'success', duration_seconds = nan }"), "can be JSON"),
    (turn("{ result = 'success', summary = 2026-01-01 }"), "can be JSON"),
    (turn("{ task = '1.1', status = 'DONE' }"), "must be one of COMPLETED, FAILED"),
    ("[[turns]\n", "line 1"),
    ("[" * 10_000, "scenario.toml"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_scenario_is_refused_before_anything_is_started(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_scenario(path)
    assert message in error.value.message
    assert "script-an-agent.md" in error.value.hint


def test_json_says_the_same_as_toml(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        turn('{ write = "a", content = "b" }', '{ run = ["x"] }', head='phase = "plan"')
    )
    turns = [{"phase": "plan", "steps": [{"write": "a", "content": "b"}, {"run": ["x"]}]}]
    (tmp_path / "a.json").write_text(json.dumps({"turns": turns}))
    (tmp_path / "b.json").write_text(json.dumps(turns))
    assert load_scenario(tmp_path / "a.toml").turns == load_scenario(tmp_path / "a.json").turns
    assert load_scenario(tmp_path / "a.json").turns == load_scenario(tmp_path / "b.json").turns


@pytest.mark.parametrize("name", ["missing.toml", "", "pipe"])
def test_a_scenario_that_is_no_file_is_refused_without_waiting(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match=r"does not exist|is a folder"):
        load_scenario(tmp_path / name)


def test_the_scenario_can_be_named_by_command_and_lies_in_the_repository(checkout: Path) -> None:
    (checkout / "play.toml").write_text(turn('{ print = "played" }'))
    task = make_task(checkout, AgentConfig("actor", command=("play.toml",)), kind="scripted")
    assert carry_out(SCRIPTED.launch(task), checkout).stdout == "played\n"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"3", b"[" * 100_000])
def test_a_broken_envelope_is_explained(checkout: Path, data: bytes) -> None:
    path = checkout.parent / "scenario.toml"
    path.write_text(turn())
    launch = SCRIPTED.launch(make_task(checkout, AgentConfig("actor", scenario=str(path))))
    finished = carry_out(msgspec.structs.replace(launch, stdin=data), checkout)
    assert finished.exit_status == 78
    assert "task envelope" in finished.stderr


def test_the_program_starts_without_third_party_modules(checkout: Path) -> None:
    """Few imports are what makes it start fast."""
    code = "import sys, phasegate.agents.scripted.program; print(sorted(m for m in sys.modules if '.' not in m))"
    names = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    for heavy in (
        "msgspec",
        "click",
        "rich",
        "asyncio",
        "yaml",
        "logging",
        "dataclasses",
        "inspect",
    ):
        assert f"'{heavy}'" not in names
