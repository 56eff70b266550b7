"""Programs driven by a script of docs/how-to/use-aider-continue-mini.md, in the sandbox, with a stand-in for the model."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from phasegate.agents.port import Ending
from support.real_agents import (
    KEY,
    MODEL,
    Configured,
    Ran,
    Subject,
    make_room,
    processes_tagged,
    run_real,
)
from support.standin import Fail, Say, Shell, Standin, Turn, Write

PAGE = Path(__file__).parents[2] / "docs/how-to/use-aider-continue-mini.md"
SCRIPTS = dict(
    re.findall(
        r"\n## ([^\n]+)\n[^#]+?```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
)
ANSWER = '{"success": true, "status": "completed"}'
LINE = "<file name='a &amp; b'>\\n \"$(id)\" `x` é 漢字 😀 %s {{X}} \t</file>\n"
LONG_PROMPT = (
    f"<prompt>\n{LINE * 1000}</prompt>\n"  # some 60 KB: with far more it counts tokens for minutes
)


def play(
    folder: Path, script: str, *turns: Turn, prompt: str = LONG_PROMPT, toolless: bool = False
) -> tuple[Ran, Standin, Path]:
    program = folder / "agent.sh"
    folder.mkdir(parents=True)
    program.write_text(script)
    program.chmod(0o755)

    def configured(url: str) -> Configured:
        env = {"OPENAI_API_KEY": KEY, "OPENAI_API_BASE": f"{url}/v1"}
        models = dict.fromkeys(("CN_MODEL", "MINI_MODEL", "AIDER_MODEL"), MODEL)
        return Configured((str(program),), {**env, **models})

    room = make_room(folder, Subject("command", "agent.sh", configured))
    with Standin(*turns, toolless=toolless) as model:
        return run_real(room, model.url, prompt, timeout_s=90.0), model, room.checkout


@pytest.mark.demand("D3.g")
def test_continue_takes_a_long_prompt_works_in_the_sandbox_and_its_last_message_is_the_answer(
    programs: Path, tmp_path: Path
) -> None:
    turns = (Write("src/hello.txt", "hello\n"), Shell("echo ran > ran.txt"), Say(ANSWER))
    ran, model, checkout = play(tmp_path / "good", SCRIPTS["Continue"], *turns)
    assert (ran.report.ending, ran.report.answer.strip()) == (Ending.COMPLETED, ANSWER), ran
    assert (checkout / "src/hello.txt").read_text() == "hello\n"
    assert (checkout / "ran.txt").read_text() == "ran\n"
    assert any(LONG_PROMPT.strip() in text for text in model.questions[0].strings)
    assert processes_tagged(ran.tag) == []
    refused, _, _ = play(tmp_path / "refused", SCRIPTS["Continue"], Fail(400))
    assert refused.report.ending is not Ending.COMPLETED, refused


@pytest.mark.skipif(
    not shutil.which("mini"),
    reason="mini-swe-agent is not installed: it comes from another registry",
)
def test_mini_swe_agent_answers_by_a_file(programs: Path, tmp_path: Path) -> None:
    shell = f"mkdir src; echo hello > src/hello.txt; echo '{ANSWER}' > $HOME/answer.txt"
    turns = (Shell(shell), Shell("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"))
    ran, _, checkout = play(tmp_path / "good", SCRIPTS["mini-swe-agent"], *turns)
    assert (ran.report.ending, ran.report.answer.strip()) == (Ending.COMPLETED, ANSWER), ran
    assert (checkout / "src/hello.txt").read_text() == "hello\n"


@pytest.mark.skipif(
    not shutil.which("aider"), reason="Aider is not installed: it comes from another registry"
)
def test_aider_writes_the_file_that_the_model_names(programs: Path, tmp_path: Path) -> None:
    said = Say(f"I make it.\n\nsrc/hello.txt\n```\nhello\n```\n\n{ANSWER}")
    ran, _, checkout = play(
        tmp_path / "good", SCRIPTS["Aider"], said, prompt="<prompt>Do it.</prompt>\n", toolless=True
    )
    assert ran.report.ending is Ending.COMPLETED, ran
    assert ran.report.answer.strip().endswith(ANSWER), ran
    assert (checkout / "src/hello.txt").read_text() == "hello\n"
