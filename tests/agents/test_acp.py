"""Real programs as agents of the Agent Client Protocol, in the real sandbox, with a stand-in for the model (D3)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from phasegate.agents.port import AgentTask, Ending, EventKind
from phasegate.core.paths.scope import Scope
from phasegate.errors import ConfigError
from support.real_agents import (
    COPILOT,
    KEY,
    Configured,
    Ran,
    Room,
    Subject,
    make_room,
    opencode_settings,
    processes_tagged,
    run_real,
)
from support.standin import Cut, Fail, Hang, Say, Shell, Standin, Turn, Write

SCOPE = ("src/",)
LINE = "<file name='a &amp; b'>\\n \"$(id)\" `x` é 漢字 😀 %s {{X}} @README.md @@ -0 +1 @@ a@b.c @.git \t</file>\n"
LONG_PROMPT = f"<prompt>\n{LINE * (300_000 // len(LINE.encode()) + 1)}</prompt>\n"
PROMPT = '<prompt>Do what the stand-in says: é, <b> &amp; "quotes".</prompt>\n'


def _gemini(url: str) -> Configured:
    env = {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url}
    return Configured(("gemini", "--acp", "-m", "gemini-2.5-flash"), env)


def _opencode(url: str) -> Configured:
    return Configured(("opencode", "acp"), {"OPENCODE_CONFIG_CONTENT": opencode_settings(url)})


AGENTS = {
    "gemini": Subject("acp", "gemini", _gemini),
    "opencode": Subject("acp", "opencode", _opencode),
}


class ScopedRoom(Room):
    """A room whose task may change the folder src, and its README if it is told so."""

    def task(self, url: str, prompt: str, phase: str = "implement") -> AgentTask:
        more = ("README.md",) if self.root.name == "wider" else ()
        return msgspec.structs.replace(
            super().task(url, prompt, phase), scope=Scope((*SCOPE, *more))
        )


@pytest.fixture(params=sorted(AGENTS))
def agent(request: pytest.FixtureRequest, programs: Path) -> Subject:
    return AGENTS[str(request.param)]


def play(
    agent: Subject, folder: Path, *turns: Turn, timeout_s: float = 90.0, prompt: str = PROMPT
) -> tuple[Ran, Standin, Path]:
    room = ScopedRoom(*make_room(folder, agent))
    with Standin(*turns) as model:
        return run_real(room, model.url, prompt, timeout_s=timeout_s), model, room.checkout


@pytest.mark.demand("D3.g", "D3.j", "P5.a")
def test_a_write_in_scope_is_allowed_and_the_prompt_arrives_whole(
    agent: Subject, tmp_path: Path
) -> None:
    turns = (Write("src/hello.txt", "hello\n"), Say("It is done."))
    ran, model, checkout = play(agent, tmp_path, *turns, prompt=LONG_PROMPT)
    assert ran.report.ending is Ending.COMPLETED, ran
    assert ran.report.answer.strip() == "It is done."
    assert (checkout / "src/hello.txt").read_text() == "hello\n", ran
    assert len(LONG_PROMPT.encode()) > 300_000
    assert any(LONG_PROMPT.strip() in text for text in model.questions[0].strings)
    assert not any("A project" in text for text in model.questions[0].strings), (
        "what the prompt names was read besides"
    )
    assert [event.path for event in ran.of_kind(EventKind.FILE)] == ["src/hello.txt"], ran.events
    assert ran.report.usage is not None
    assert ran.report.usage.output_tokens >= 23, ran.report
    assert processes_tagged(ran.tag) == []


@pytest.mark.demand("D3.g", "D3.j", "D6.a")
def test_a_write_outside_the_scope_is_refused_before_it_happens(
    agent: Subject, tmp_path: Path
) -> None:
    turns = (Write("README.md", "changed\n"), Say("I went on."))
    control, _, wider = play(agent, tmp_path / "wider", *turns)
    assert (wider / "README.md").read_text() == "changed\n", (
        control
    )  # where it is in scope, it is written
    ran, _, checkout = play(agent, tmp_path / "narrow", *turns)
    assert (checkout / "README.md").read_text() == "A project\n", ran
    assert any("README.md" in event.text for event in ran.of_kind(EventKind.NOTICE)), ran
    assert ran.report.ending in (Ending.COMPLETED, Ending.FAILED), ran
    assert processes_tagged(ran.tag) == []


@pytest.mark.demand("D3.g")
def test_commands_run_in_the_sandbox(agent: Subject, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    command = f"echo x > {outside}; echo ran > ran.txt"
    ran, _, checkout = play(agent, tmp_path, Shell(command), Say("Done."))
    assert (checkout / "ran.txt").read_text() == "ran\n", ran
    assert not outside.exists()
    assert ran.report.ending is Ending.COMPLETED, ran


@pytest.mark.demand("D10.a", "D10.b")
def test_an_error_of_the_model_is_an_end_with_a_reason(agent: Subject, tmp_path: Path) -> None:
    ran, _, _ = play(agent, tmp_path, Fail(400))
    assert ran.report.ending is Ending.FAILED, ran
    assert "400" in ran.report.reason, ran


@pytest.mark.demand("D9.a")
def test_a_model_that_says_nothing_is_ended_by_the_clock(agent: Subject, tmp_path: Path) -> None:
    ran, _, _ = play(agent, tmp_path, Hang(), timeout_s=25.0)
    assert ran.finished.sigterm_sent
    assert ran.report.ending is Ending.FAILED, ran
    assert "timed out" in ran.report.reason
    assert processes_tagged(ran.tag) == []


# --- GitHub Copilot CLI: it creates files only in folders that exist, and hides errors in good ends


def play_copilot(
    folder: Path, *turns: Turn, files: dict[str, str] | None = None
) -> tuple[Ran, Path]:
    room = ScopedRoom(*make_room(folder, COPILOT, {"src/kept.txt": "kept\n", **(files or {})}))
    with Standin(*turns) as model:
        return run_real(room, model.url, PROMPT, timeout_s=90.0), room.checkout


@pytest.mark.demand("D3.g", "D3.j", "D6.a")
def test_copilot_writes_in_scope_runs_commands_and_goes_on_after_a_refusal(
    programs: Path, tmp_path: Path
) -> None:
    turns = (Write("src/hello.txt", "hello\n"), Shell("echo ran > src/ran.txt"), Say("It is done."))
    ran, checkout = play_copilot(tmp_path / "good", *turns)
    assert (ran.report.ending, ran.report.answer) == (Ending.COMPLETED, "It is done."), ran
    assert (checkout / "src/hello.txt").read_text() == "hello\n"
    assert (checkout / "src/ran.txt").read_text() == "ran\n"
    refused, checkout = play_copilot(
        tmp_path / "refused", Write("outside.txt", "x\n"), Say("I went on.")
    )
    assert (refused.report.ending, refused.report.answer) == (Ending.COMPLETED, "I went on."), (
        refused
    )
    assert not (checkout / "outside.txt").exists()
    assert processes_tagged(refused.tag) == []


@pytest.mark.demand("D10.a", "D10.b")
@pytest.mark.parametrize(
    ("turn", "ending"),
    [
        (Fail(401), Ending.NOT_RUNNABLE),
        (Fail(429, retry_after_s=3600), Ending.RATE_LIMITED),
        (Cut(), Ending.TRANSIENT),
    ],
    ids=["401", "429", "cut"],
)
def test_an_error_of_copilots_model_is_told_apart(
    programs: Path, tmp_path: Path, turn: Turn, ending: Ending
) -> None:
    ran, _ = play_copilot(tmp_path, turn)
    assert ran.report.ending is ending, ran


@pytest.mark.demand("D3.i")
def test_copilot_is_not_started_where_a_repository_has_hooks_for_it(
    programs: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"\.github/hooks"):
        play_copilot(tmp_path, Say("x"), files={".github/hooks/h.json": "{}"})
