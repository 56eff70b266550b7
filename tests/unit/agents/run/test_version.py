"""Which version a program says it is, and what it is not given when it is asked."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import pytest

from phasegate.agents.run.version import probe_version
from phasegate.core.agents.harnesses import INSTALLABLE_HARNESSES
from phasegate.sandbox.probe import choose_level, probe_level
from phasegate.sandbox.request import SandboxLevel

INSPECTOR = "@modelcontextprotocol/inspector"  # a peer of the MCP server, not an agent
MANIFEST = Path(__file__).parents[3] / "agents/package.json"


def ask(
    folder: Path, script: str, patience_s: float = 20.0, level: SandboxLevel | None = None
) -> tuple[str, str]:
    program = folder / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    strongest = choose_level(None, needs_network=False)
    return tuple(probe_version((str(program), "--version"), level or strongest, patience_s))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("2.1.325 (Claude Code)", "2.1.325"),
        ("codex-cli 0.166.0", "0.166.0"),
        ("0.61.0", "0.61.0"),
        ("v1.2.3-beta.4+build", "1.2.3-beta.4+build"),
        ("2025.09.18-7ae6800", "2025.09.18-7ae6800"),
        ("1.0.0\\033[31m", "1.0.0"),
    ],
)
def test_a_version_is_found_in_what_a_program_prints(
    tmp_path: Path, said: str, number: str
) -> None:
    assert ask(tmp_path, f"printf '{said}\\n'") == (number, "")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo hello", "it printed no version"),
        ("echo 1.2.3; exit 3", "it ended with exit status 3"),
        (":", "it printed no version"),
    ],
)
def test_a_version_that_is_not_known_is_said_to_be_unknown(
    tmp_path: Path, script: str, why: str
) -> None:
    assert ask(tmp_path, script) == ("", why)


def test_a_program_that_does_not_answer_is_ended(tmp_path: Path) -> None:
    number, why = ask(tmp_path, "exec sleep 600", patience_s=1.0)
    assert number == ""
    assert "did not answer" in why


def test_a_program_that_cannot_be_started_has_no_version(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    assert probe_version((str(broken),), choose_level(None, needs_network=False)).problem


LOOKS = 'test -z "$ANTHROPIC_API_KEY" && test ! -e "$HOME/.claude" && echo 1.2.3 || echo leaked'


@pytest.mark.demand("D3.k")
def test_neither_keys_nor_the_home_folder_reach_a_program_that_is_asked_for_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home/.claude").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "dummy-key-4711")
    assert ask(tmp_path, LOOKS) == ("1.2.3", "")
    plain = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True)
    assert plain.stdout == "leaked\n"  # started as it is, it would see both


@pytest.mark.skipif(
    not probe_level(SandboxLevel.OFFLINE).is_supported,
    reason="not enforceable here: there is no sandbox",
)
def test_a_program_that_is_asked_for_its_version_reaches_no_network(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        calls = f"""exec python3 -c '
import socket
try:
    socket.create_connection(("127.0.0.1", {port}), 5)
    print("reached")
except OSError:
    print("1.2.3")'"""
        assert ask(tmp_path, calls) == ("1.2.3", "")
        plain = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True)
        assert plain.stdout == "reached\n"  # started as it is, it would


def test_the_tested_versions_are_those_that_the_tests_run() -> None:
    dependencies = json.loads(MANIFEST.read_text())["dependencies"]
    tested = {
        row.npm_package: row.tested_version
        for row in INSTALLABLE_HARNESSES.values()
        if row.tested_version
    }
    others = {INSPECTOR, "@moonshot-ai/kimi-code"}  # driven, and no harness of ours
    assert dependencies.keys() == tested.keys() | others
    assert tested.items() <= dependencies.items()
    assert INSTALLABLE_HARNESSES["cursor"].tested_version == ""
