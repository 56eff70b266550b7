"""An agent asks a person from inside its job; the answer reaches it, or the next one in its place."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from phasegate.engine.jobs.step_context import StepContextReader
from phasegate.engine.journal.asking import (
    MAX_OPEN_QUESTIONS,
    MAX_OPTIONS,
    MAX_TEXT_CHARS,
    ask_question,
)
from phasegate.engine.journal.questions import (
    QUESTION_ANSWERED,
    QUESTION_ASKED,
    read_open_questions,
)
from phasegate.engine.project.project import open_project_store
from phasegate.errors import ConfigError
from support.board_client import BoardClient
from support.feature_run import (
    DESCRIPTION,
    SCENARIO,
    SLUG,
    TYPE,
    FeatureRun,
    Turn,
    implements,
    make_feature_run,
)
from support.mcp_client import McpClient, confirms

WHICH = "Which word do you want?"
PAGE = f"/at/repo/feature/{SLUG}"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FeatureRun:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return make_feature_run(tmp_path)


def asks(path: str, *more: str, **asked: object) -> Turn:
    """An implementer that puts the answer that it gets into its work."""
    turn = implements("write", path, "", **asked)
    words = " ".join(f'"{one}"' for one in ("ask", WHICH, *more))
    turn["steps"][0] = {
        "run": [
            "sh",
            "-c",
            f'{{ echo \'answer = """\'; phasegate {words}; echo \'"""\'; }} > {path}',
        ]
    }
    return turn


def waiting(run: FeatureRun) -> list[dict[str, object]]:
    return [
        one
        for one in json.loads(run.command("status", "--json").stdout)["waiting"]
        if one["question"]
    ]


def asked_now(run: FeatureRun) -> dict[str, object]:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if found := waiting(run):
            return found[0]
    raise AssertionError("nobody asked")


@pytest.mark.demand("X2.d")
def test_an_agent_that_waits_gets_the_answer_from_the_board_and_it_is_in_its_work(
    run: FeatureRun,
) -> None:
    keeps = ["sh", "-c", f"cat >> {run.folder}/told; echo >> {run.folder}/told"]
    with (run.root / "phasegate.toml").open("a") as settings:
        settings.write(f"[notify]\ncommand = {json.dumps(keeps)}\n")
    run.git("commit", "-qam", "Tell me")
    run.play(asks("bye.py", "--option", "bye", "--option", "so long", package="WP01"), *SCENARIO)
    assert run.run("run", TYPE, DESCRIPTION, "--detach").returncode == 0
    one = asked_now(run)
    assert (one["package"], one["reason"], one["options"]) == ("WP01", WHICH, ["bye", "so long"])
    said = run.command("status").stdout
    assert f'phasegate answer {one["question"]} "bye" --feature {SLUG}' in said
    assert f'or: phasegate answer {one["question"]} "so long"' in said
    assert f'  phasegate answer {one["question"]} "so long"' in run.command("show").stdout
    pasted = run.command("answer", one["question"], "bye | so long")
    assert (pasted.code, "is not among the options" in pasted.stderr) == (2, True)
    with BoardClient(run.root) as board:
        page = board.get(PAGE).text
        assert (WHICH in page, "so long" in page, WHICH in board.get("/decisions").text) == (
            True,
            True,
            True,
        )
        assert board.post(f"/at/repo/answer/{one['question']}", text=" ").status == 404
        assert board.post(f"/at/repo/answer/{one['question']}", text="so long").status == 200
        assert board.post(f"/at/repo/answer/{one['question']}", text="bye").status == 409  # once
        assert WHICH not in board.get("/decisions").text
    run.command("run", "--feature", SLUG)  # refused while the other works
    while json.loads(run.command("status", "--json").stdout)["workflow"]["standing"] == "working":
        pass
    assert "so long" in run.git("show", f"feat/{SLUG}:bye.py")
    with run.reader() as reader:
        kinds = [
            event.kind
            for event in reader.events(SLUG)
            if event.kind in (QUESTION_ASKED, QUESTION_ANSWERED)
        ]
        (answered,) = [event for event in reader.events(SLUG) if event.kind == QUESTION_ANSWERED]
    assert kinds == [QUESTION_ASKED, QUESTION_ANSWERED]
    told = json.loads((run.folder / "told").read_text().splitlines()[0])
    assert (told["package"], told["outcome"], told["reason"]) == ("WP01", "an agent asks", WHICH)
    assert told["command"] == f'phasegate answer {one["question"]} "..." --feature {SLUG}'
    assert json.loads(answered.payload)["by"] == {"person": "Test", "door": "board"}


@pytest.mark.demand("X2.d")
def test_without_an_answer_an_agent_decides_and_a_late_answer_is_in_the_next_prompt(
    run: FeatureRun,
) -> None:
    strays = asks("bye.py", "--no-wait", package="WP01", round=1)
    strays["steps"].insert(1, {"write": "stray.py", "content": "x = 1\n"})
    run.play(strays, *SCENARIO)
    assert run.command("run", TYPE, DESCRIPTION).code == 1  # a person is needed for the stray file
    one = asked_now(run)
    assert "Decide yourself" in (run.root / f".worktrees/{SLUG}-WP01/bye.py").read_text()
    with McpClient(run.root, person=confirms) as client:
        assert client.tool("status")["questions"][0]["question"] == one["question"]
        client.tool("decide", order="answer", question=str(one["question"]), text="the short one")
        assert "the short one" in client.asked[0]
        assert client.tool("status")["questions"] == []
        assert "is already answered" in client.refusal(
            "decide", order="answer", question=str(one["question"]), text="x"
        )
    assert run.command("answer", str(one["question"]), "another").code == 4
    assert run.command("scope", "allow", "WP01", "stray.py", "--reason", "it may").code == 0
    assert run.command("resolve", "allowed").code == 0
    run.command("run")
    prompts = [path.read_text() for path in (run.root / ".phasegate/jobs").glob("*/prompt.xml")]
    late = [text for text in prompts if f"{WHICH} Answer: the short one" in text]
    assert late, "no later job was told"


@pytest.mark.demand("X2.d")
def test_questions_are_bounded_and_the_command_line_refuses_what_is_none(run: FeatureRun) -> None:
    run.command("start", TYPE, DESCRIPTION)
    project = run.project
    with open_project_store(project) as store:
        refused = {
            "": (),
            "x" * (MAX_TEXT_CHARS + 1): (),
            "y": ("o",) * (MAX_OPTIONS + 1),
            "z": ("",),
        }
        for text, options in refused.items():
            with pytest.raises(ConfigError):
                ask_question(project, store, SLUG, "", "job", text, options)
        ids = [
            ask_question(project, store, SLUG, "", "job", f"what is {n}?", ())
            for n in range(MAX_OPEN_QUESTIONS)
        ]
        with pytest.raises(ConfigError):
            ask_question(project, store, SLUG, "", "job", "one more", ())
        assert len(read_open_questions(store, SLUG)) == MAX_OPEN_QUESTIONS
    assert run.command("answer", "nothing", "yes").code == 2
    assert run.command("answer", ids[0], " ").code == 2
    assert run.command("answer", ids[0][:7], "yes").code == 0
    assert run.command("answer", ids[0], "no").code == 4
    assert run.command("answer", "parse", "--phase", "review", "/dev/null").code == 1  # as before


@pytest.mark.demand("X2.d")
def test_an_answer_from_planning_reaches_every_package_and_one_of_a_package_the_feature(
    run: FeatureRun,
) -> None:
    run.command("start", TYPE, DESCRIPTION)
    with open_project_store(run.project) as store:
        for work in ("", "WP01"):
            asked = ask_question(run.project, store, SLUG, work, "job", f"which in {work}?", ())
            assert run.command("answer", asked, f"for {work}").code == 0

        def told(package: str) -> str:
            return "".join(StepContextReader(store, SLUG, package).read().user_answers)

        assert "for WP01" in told("WP01")
        assert "which in ?" in told("WP01")
        assert "which in ?" in told("WP02")
        assert "WP01" not in told("WP02")
        assert "for WP01" in told("")
