"""The guide to scripted agents: its example works, and it names every step and key."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from phasegate.agents.port import AgentConfig, get_harness
from phasegate.agents.scripted import scenario
from phasegate.agents.scripted.scenario import load_scenario
from phasegate.core.answer.parse import parse_answer
from support.agents import carry_out
from support.checkout import git, repository
from support.tasks import make_task

GUIDE = Path(__file__).parents[2] / "docs/how-to/script-an-agent.md"


def examples() -> list[str]:
    return re.findall(r"```toml\n(.*?)```", GUIDE.read_text(), re.S)


@pytest.mark.demand("D3.i")
def test_the_example_of_the_guide_plays_two_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    folder = repository(tmp_path / "repo", {"README.md": "x\n"})
    (tmp_path / "login.toml").write_text(examples()[1])
    answers = []
    for phase, number in (("implement", 1), ("review", 1), ("implement", 2), ("review", 2)):
        agent = AgentConfig("actor", scenario=str(tmp_path / "login.toml"))
        task = make_task(folder, agent, kind="scripted", phase=phase, number=number)
        finished = carry_out(get_harness("scripted").launch(task), folder)
        assert (finished.exit_status, finished.stderr) == (0, "")
        answers.append(parse_answer(finished.stdout, phase))
    assert [answer.error for answer in answers] == [None] * 4
    assert [answer.verdict for answer in answers] == [None, "NEEDS_CHANGES", None, "PASS"]
    first, second = answers[0].response, answers[2].response
    assert first is not None
    assert first.success
    assert second is not None
    assert second.commits is not None
    assert second.commits[0].message == "feat(WP01): test the check [FR-AUTH-001]"
    assert answers[0].task_statuses == {"1.1": "COMPLETED"}
    assert (
        git(folder, "log", "--format=%s", "-2").splitlines()[1]
        == "WP01: Add the check of e-mail addresses"
    )


def test_the_misbehaviour_of_the_guide_is_a_valid_scenario(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(f"[[turns]]\n{examples()[2]}")
    assert len(load_scenario(tmp_path / "bad.toml").turns[0].steps) == 5


def test_the_guide_names_every_step_and_every_key() -> None:
    text = GUIDE.read_text()
    for step in scenario.STEP_RULES:
        assert f"{{ {step} = " in text, step
    for key in scenario.MATCH_KEYS:
        assert f"`{key}`" in text, key
