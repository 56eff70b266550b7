"""`phasegate agents`: what is there, what is missing, and a round trip (D3.k)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phasegate.core.agents.harnesses import HARNESSES
from phasegate.storage.location import locate_repository
from phasegate.storage.reader import open_store_reader
from phasegate.storage.verify_audit import verify_audit
from support.fake_programs import Machine, make_machine

KEY = "dummy-key-4711"
TESTED = HARNESSES["claude_code"].tested_version
CLAUDE = f"echo '{TESTED} (Claude Code)'"
# An agent that finds the word in its prompt and says it.
ECHOES = r"""
sed -n 's/.*\(round-trip-[0-9a-f]*\).*/\1/p' "$AGILEPLUS_PROMPT"
echo '<review>PASS</review>'
"""


def surveyed(machine: Machine, env: dict[str, str] | None = None) -> dict[str, Any]:
    done = machine.command("agents", "--json", env=env)
    assert done.code in (0, 1), done.stderr
    return {one["name"]: one for one in done.json["agents"]}


@pytest.mark.demand("D3.k")
def test_without_any_program_it_says_no_and_how_to_get_each(tmp_path: Path) -> None:
    machine = make_machine(tmp_path)
    done = machine.command("agents", "--all")
    assert done.code == 1
    assert "no agent can be started" in done.stderr
    for package in (
        "@anthropic-ai/claude-code",
        "@openai/codex",
        "@google/gemini-cli",
        "opencode-ai",
    ):
        assert f"npm install -g {package}" in done.stdout
    assert not any(one["can_start"] for one in surveyed(machine).values())
    about_cursor = done.stdout.partition("cursor-agent  (cursor")[2].partition("opencode  (")[0]
    assert "untested with Phasegate" in about_cursor
    assert done.stdout.count("untested") == 1


@pytest.mark.demand("D3.k")
def test_each_program_is_shown_with_its_place_its_version_and_the_tested_one(
    tmp_path: Path,
) -> None:
    machine = make_machine(tmp_path)
    path = machine.install("claude", CLAUDE)
    machine.install("codex", "echo codex-cli 9.9.9")
    machine.install("gemini", "exit 3")
    machine.install("cursor-agent", "echo 2025.09.18-7ae6800")
    done = machine.command("agents")
    assert done.code == 0, done.stderr
    assert str(path) in done.stdout
    assert f"{TESTED}, tested\n" in done.stdout
    assert f"9.9.9, newer than tested ({HARNESSES['codex'].tested_version})\n" in done.stdout
    assert "unknown: it ended with exit status 3" in done.stdout
    assert "2025.09.18-7ae6800, untested" in done.stdout
    found = surveyed(machine)
    assert (found["claude"]["path"], found["claude"]["version"]) == (str(path), TESTED)
    assert found["qwen"]["path"] == ""


@pytest.mark.demand("D3.k")
def test_a_program_that_is_older_than_the_tested_one_is_told_how_to_be_updated(
    tmp_path: Path,
) -> None:
    machine = make_machine(tmp_path)
    machine.install("gemini", "echo 0.60.9")
    machine.install("claude", "echo 0.0.1")
    update = "npm install -g @google/gemini-cli@latest"
    assert f"0.60.9, older than tested (0.61.0): {update}\n" in machine.command("agents").stdout
    found = surveyed(machine)
    assert (found["gemini"]["version_standing"], found["gemini"]["update"]) == (
        "older than tested",
        update,
    )
    assert {
        "what": "version 0.0.1 is too old",
        "remedy": "npm install -g @anthropic-ai/claude-code@latest",
    } in found["claude"]["missing"]


def test_a_program_that_is_a_script_of_the_repository_is_asked_too(tmp_path: Path) -> None:
    machine = make_machine(
        tmp_path, '[agents.mine]\nharness = "codex"\ncommand = ["sh", "tools/mine.sh"]\n'
    )
    script = machine.repository / "tools/mine.sh"
    script.parent.mkdir()
    script.write_text('test "$1" = --version && echo mine 4.5.6\n')
    assert surveyed(machine)["mine"]["version"] == "4.5.6"


def test_a_program_on_a_relative_path_is_not_found_because_no_job_would_find_it(
    tmp_path: Path,
) -> None:
    machine = make_machine(tmp_path)
    planted = machine.repository / "claude"
    planted.write_text("#!/bin/sh\necho 1.2.3\n")
    planted.chmod(0o755)
    found = surveyed(machine, {"PATH": f".:{machine.programs}"})
    assert not found["claude"]["can_start"]


@pytest.mark.demand("D3.k")
def test_keys_and_sign_ins_are_named_and_never_shown(tmp_path: Path) -> None:
    machine = make_machine(tmp_path)
    machine.install("claude", CLAUDE)
    machine.install("codex", "echo 0.166.0")
    bare = surveyed(machine)
    assert bare["claude"]["sign_in"] == []
    assert any("ANTHROPIC_API_KEY" in missing["remedy"] for missing in bare["claude"]["missing"])
    machine.sign_in(".codex/auth.json", f'{{"token": "{KEY}"}}')
    env = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}
    found = surveyed(machine, env)
    assert found["claude"]["sign_in"] == ["ANTHROPIC_API_KEY"]
    assert found["codex"]["sign_in"] == ["~/.codex/auth.json"]
    assert found["claude"]["missing"] == found["codex"]["missing"] == []
    for arguments in (("agents",), ("agents", "--json")):
        done = machine.command(*arguments, env=env)
        assert KEY not in done.stdout + done.stderr


def test_a_sign_in_that_is_not_lent_does_not_count(tmp_path: Path) -> None:
    machine = make_machine(
        tmp_path, '[agents.mine]\nharness = "codex"\nshare_sign_in = false\nenv = ["MY_KEY"]\n'
    )
    machine.install("codex", "echo 0.166.0")
    machine.sign_in(".codex/auth.json")
    assert surveyed(machine)["mine"]["sign_in"] == []
    assert surveyed(machine, {"MY_KEY": KEY})["mine"]["sign_in"] == ["MY_KEY"]


def test_an_acp_agent_signs_in_as_its_program_does(tmp_path: Path) -> None:
    machine = make_machine(
        tmp_path, '[agents.live]\nharness = "acp"\ncommand = ["opencode", "acp"]\n'
    )
    machine.install("opencode", "echo 1.18.33")
    assert surveyed(machine, {"OPENAI_API_KEY": KEY})["live"]["sign_in"] == ["OPENAI_API_KEY"]
    assert "opencode auth login" in surveyed(machine)["live"]["missing"][0]["remedy"]


CONFIGURED = """\
[agents.writer]
harness = "claude_code"
fallback = "own"
[agents.own]
harness = "command"
command = ["./agent.sh"]
[agents.gone]
harness = "acp"
command = ["no-such-agent", "--acp"]
[agents.actor]
harness = "scripted"
scenario = "no-such-file.toml"
[roles]
review = "own"
03-architecture = "own"
"""


@pytest.mark.demand("D3.k", "W7.a")
def test_configured_agents_are_shown_with_their_roles_and_what_they_lack(tmp_path: Path) -> None:
    machine = make_machine(
        tmp_path, CONFIGURED.replace("03-arch", '"03-arch').replace("ecture =", 'ecture" =')
    )
    machine.install("claude", CLAUDE)
    script = machine.repository / "agent.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    found = surveyed(machine)
    assert found["writer"]["roles"] == ["plan", "implement", "archive"]
    assert found["own"]["roles"] == ["challenge", "review", "03-architecture"]
    assert found["own"]["stands_in_for"] == ["writer"]
    assert (found["own"]["path"], found["own"]["version"]) == (str(script), "")
    assert found["own"]["version_unknown"] == "the program cannot report it"
    assert "no-such-agent" in found["gone"]["missing"][0]["what"]
    assert "no-such-file.toml" in found["actor"]["missing"][0]["what"]
    assert "claude" not in found  # its kind is configured under another name
    assert not found["codex"]["configured"]


@pytest.mark.parametrize("level", ["none", "worktree"])
def test_the_sandbox_level_that_will_hold_is_shown(tmp_path: Path, level: str) -> None:
    machine = make_machine(tmp_path, f'[run]\nsandbox = "{level}"\n')
    machine.install("claude", CLAUDE)
    if level == "none":
        assert surveyed(machine)["claude"]["sandbox"] == "none"
        return
    machine.programs.joinpath("bwrap").unlink(missing_ok=True)
    (claude,) = (
        one for one in machine.program("agents", "--json").json["agents"] if one["name"] == "claude"
    )
    assert claude["sandbox"] == ""
    assert any("bubblewrap" in missing["what"] for missing in claude["missing"])


def test_it_works_outside_of_a_repository_too(tmp_path: Path) -> None:
    machine = make_machine(tmp_path)
    machine.install("claude", CLAUDE)
    assert machine.command("agents", cwd=machine.home).code == 0


# --- a round trip


def own_agent(folder: Path, script: str, more: str = "") -> Machine:
    machine = make_machine(
        folder, f'[agents.own]\nharness = "command"\ncommand = ["./agent.sh"]\n{more}'
    )
    path = machine.repository / "agent.sh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return machine


@pytest.mark.demand("D3.h")
def test_an_agent_that_answers_works_and_is_on_record(tmp_path: Path) -> None:
    machine = own_agent(tmp_path, ECHOES)
    done = machine.command("agents", "test", "own", "--json")
    assert done.code == 0, done.stdout + done.stderr
    trip = done.json
    assert trip["ok"]
    assert f"round-trip-{trip['job'][:8]}" in trip["answer"]
    assert "works" in machine.command("agents", "test", "own").stdout
    location = locate_repository(
        machine.repository,
        {"HOME": str(machine.home), "XDG_STATE_HOME": f"{machine.home}/.local/state"},
    )
    reader = open_store_reader(location)
    assert reader is not None
    with reader:
        job = reader.find_job(trip["job"])
    assert job is not None
    assert (job.agent, job.phase, job.outcome) == ("own", "review", "done")
    assert verify_audit(location).problems == ()
    assert machine.command("audit", "show", "--job", trip["job"][:8]).code == 0
    assert [*(machine.repository / ".worktrees").iterdir()] == []
    assert "agents-test" not in machine.command("status").stdout


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo hello; echo '<review>PASS</review>'", "does not contain the requested word"),
        ("echo hello", "review"),
        ("echo 'API Error: 401 Unauthorized' >&2; exit 1", "exit status 1"),
        ("echo 'BLOCKER: I do not want to'", "I do not want to"),
        ("echo '429 Too Many Requests, retry after 60s' >&2; exit 1", "wait until then"),
        ("exec sleep 600", "time"),
    ],
    ids=["another word", "no answer", "refused", "blocker", "limit", "timeout"],
)
def test_an_agent_that_does_not_answer_as_asked_does_not_work_and_the_reason_is_told(
    tmp_path: Path, script: str, reason: str
) -> None:
    machine = own_agent(tmp_path, script, "timeout_s = 3\n")
    done = machine.command("agents", "test", "own")
    assert done.code == 1, done.stdout + done.stderr
    assert "does not work" in done.stdout
    assert reason in done.stdout
    assert "what to do: " in done.stdout
    assert "logs: " in done.stdout


def test_an_agent_that_nobody_knows_or_that_is_not_installed_is_refused_with_a_hint(
    tmp_path: Path,
) -> None:
    machine = make_machine(tmp_path)
    unknown = machine.command("agents", "test", "cloude")
    assert (unknown.code, "did you mean `claude`?" in unknown.stderr) == (2, True)
    missing = machine.command("agents", "test", "claude")
    assert (missing.code, "phasegate agents" in missing.stderr) == (2, True)


@pytest.mark.demand("D3.k")
def test_a_program_without_a_sign_in_and_a_key_is_not_started(tmp_path: Path) -> None:
    machine = make_machine(tmp_path)
    started = tmp_path / "started"
    machine.install("claude", f"cat > /dev/null; touch {started}; exit 1")
    done = machine.command("agents", "test", "claude")
    assert done.code == 2
    assert "claude was not started: neither a sign-in nor a key was found" in done.stderr
    assert "set ANTHROPIC_API_KEY" in done.stderr
    assert not started.exists()
    assert "installed, but no sign-in was found" in machine.command("agents").stdout
    signed_in = machine.command("agents", env={"ANTHROPIC_API_KEY": KEY})
    assert "claude  (claude_code, not configured)  can be started" in signed_in.stdout
    tried = machine.command("agents", "test", "claude", env={"ANTHROPIC_API_KEY": KEY})
    assert (tried.code, "does not work" in tried.stdout) == (1, True), tried.stdout + tried.stderr


def test_a_reached_limit_stops_a_round_trip_too(tmp_path: Path) -> None:
    says = '{"type":"result","subtype":"success","is_error":false,"result":"x","total_cost_usd":30.0,"usage":{}}'
    machine = make_machine(tmp_path, "[limits]\nrun_cost_usd = 1000\ntotal_cost_usd = 25\n")
    machine.install("claude", f"cat > /dev/null; echo '{says}'")
    first = machine.command("agents", "test", "claude", "--json", env={"ANTHROPIC_API_KEY": KEY})
    assert first.json["usage"]["cost_usd"] == 30.0, first.stdout + first.stderr
    second = machine.command("agents", "test", "claude", env={"ANTHROPIC_API_KEY": KEY})
    assert second.code == 1
    assert "total_cost_usd" in second.stdout
