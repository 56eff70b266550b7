"""Which levels hold, and which one is taken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from phasegate.errors import EnvironmentUnavailable
from phasegate.sandbox import probe as probing
from phasegate.sandbox.probe import LevelSupport, choose_level, probe_level
from phasegate.sandbox.request import SandboxLevel


def on_a_machine_with(monkeypatch: pytest.MonkeyPatch, *levels: SandboxLevel) -> None:
    """A machine that has these levels and no others."""
    found = {
        level: LevelSupport(level, level in levels, "bubblewrap is not installed")
        for level in SandboxLevel
    }
    monkeypatch.setattr(probing, "probe_level", found.__getitem__)


@pytest.mark.parametrize(
    ("holds", "needs_network", "expected"),
    [
        (
            [SandboxLevel.NONE, SandboxLevel.WORKTREE, SandboxLevel.OFFLINE],
            True,
            SandboxLevel.WORKTREE,
        ),
        (
            [SandboxLevel.NONE, SandboxLevel.WORKTREE, SandboxLevel.OFFLINE],
            False,
            SandboxLevel.OFFLINE,
        ),
        ([SandboxLevel.NONE, SandboxLevel.WORKTREE], False, SandboxLevel.WORKTREE),
        ([SandboxLevel.NONE], True, SandboxLevel.NONE),
        ([SandboxLevel.NONE], False, SandboxLevel.NONE),
    ],
)
def test_by_default_the_strongest_level_is_taken_that_holds_and_leaves_what_is_needed(
    monkeypatch: pytest.MonkeyPatch,
    holds: list[SandboxLevel],
    needs_network: bool,
    expected: SandboxLevel,
) -> None:
    on_a_machine_with(monkeypatch, *holds)
    assert choose_level(None, needs_network) is expected


@pytest.mark.demand("D6.f")
@pytest.mark.parametrize("level", [SandboxLevel.WORKTREE, SandboxLevel.OFFLINE])
def test_a_configured_level_that_does_not_hold_is_refused_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, level: SandboxLevel
) -> None:
    on_a_machine_with(monkeypatch, SandboxLevel.NONE)
    with pytest.raises(EnvironmentUnavailable, match="bubblewrap is not installed") as refused:
        choose_level(level, needs_network=False)
    assert refused.value.hint


def test_a_configured_level_is_never_weakened(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_machine_with(monkeypatch, *SandboxLevel)
    assert choose_level(SandboxLevel.OFFLINE, needs_network=True) is SandboxLevel.OFFLINE
    assert choose_level(SandboxLevel.NONE, needs_network=False) is SandboxLevel.NONE


def test_level_none_always_holds_and_says_that_it_enforces_nothing() -> None:
    assert probe_level(SandboxLevel.NONE).is_supported
    assert "nothing is enforced" in probe_level(SandboxLevel.NONE).gaps[0]


def test_a_machine_without_bubblewrap_says_so(tmp_path: Path) -> None:
    assert probed(str(tmp_path), tmp_path) == [
        "none True ",
        "worktree False bubblewrap is not installed",
        "offline False bubblewrap is not installed",
    ]


def probed(path: str, home: Path) -> list[str]:
    """What a new process with this PATH says about each level."""
    code = """if True:
        from phasegate.sandbox.request import SandboxLevel
        from phasegate.sandbox.probe import probe_level
        for found in map(probe_level, SandboxLevel):
            print(found.level, found.is_supported, found.problem)
    """
    argv = [sys.executable, "-c", code]
    env = {"PATH": path, "HOME": str(home)}
    return subprocess.run(
        argv, env=env, capture_output=True, text=True, check=True
    ).stdout.splitlines()


@pytest.mark.parametrize(
    ("pretender", "why"),
    [
        (
            'while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
            "could write outside|shares the host's PID namespace",
        ),
        ("echo bwrap: setting up uid map: Permission denied >&2; exit 1", "Permission denied"),
        ("exit 0", "without an error message"),
    ],
)
def test_a_bubblewrap_that_holds_nothing_is_found_out(
    tmp_path: Path, pretender: str, why: str
) -> None:
    """Only what was tried counts: a program of that name that runs the job without a sandbox is no sandbox."""
    tool = tmp_path / "bwrap"
    tool.write_text(f"#!/bin/sh\n{pretender}\n")
    tool.chmod(0o755)
    none, *sandboxed = probed(f"{tmp_path}:/usr/bin:/bin", tmp_path)
    assert none == "none True "
    assert all(
        "False" in line and any(reason in line for reason in why.split("|")) for line in sandboxed
    )
