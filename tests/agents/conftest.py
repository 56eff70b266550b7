"""Real agent programs only: `make test-agents` installs them and says where."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.real_agents import SUBJECTS, Subject

INSTALLED = os.environ.get("PHASEGATE_TEST_AGENTS", "")
MISSING = os.environ.get("PHASEGATE_TEST_AGENTS_MISSING") or "run `make test-agents`"
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "PHASEGATE_TRUST")


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the installed programs, first on PATH; without it every test that needs it is skipped."""
    if not INSTALLED:
        pytest.skip(f"the real agent programs are not installed: {MISSING}")
    for name in [
        *os.environ
    ]:  # no key, no proxy and no address of this machine can reach a program
        if name not in KEPT and not name.startswith(("GIT_", "PYTEST_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{INSTALLED}:{os.environ['PATH']}")
    return Path(INSTALLED)


@pytest.fixture(params=[kind for kind in sorted(SUBJECTS) if kind != "qwen"])
def subject(request: pytest.FixtureRequest, programs: Path) -> Subject:
    """Each of the programs in turn; the slowest one in those tests only that name it."""
    found = SUBJECTS[str(request.param)]
    if found.kind == "qwen" and _node_major(programs) < 22:
        pytest.skip("qwen needs Node 22, which the registry has for other machines only")
    return found


@pytest.fixture
def node22(programs: Path) -> None:
    if _node_major(programs) < 22:
        pytest.skip("this needs Node 22, which the registry has for other machines only")


def _node_major(programs: Path) -> int:
    path = {"PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin"}
    said = subprocess.run(
        ["node", "--version"], capture_output=True, text=True, env=path, timeout=30
    )
    return int(said.stdout.lstrip("v").partition(".")[0])
