"""tools/audit_locks.py: a known vulnerability is a no; no answer is never called a yes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tools.audit_locks import findings_in, verdict

ROOT = Path(__file__).parents[2]
SOUND = {"name": "click", "version": "8.1", "vulns": []}
UNKNOWN = {"name": "msgspec", "skip_reason": "not found"}
VULNERABLE = {
    "name": "pyyaml",
    "version": "5.1",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["5.4"]}],
}


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        ([SOUND], 0, "no known vulnerability"),
        ([SOUND, UNKNOWN], 0, "*** NOT AUDITED: the service knows nothing of msgspec"),
        ([UNKNOWN, VULNERABLE], 1, "pyyaml 5.1: PYSEC-1, fixed in 5.4"),
    ],
)
def test_a_vulnerability_fails_and_a_package_without_an_answer_is_named(
    packages: list[dict[str, object]], code: int, said: str
) -> None:
    found = verdict(findings_in(json.dumps({"dependencies": packages})))
    assert found[0] == code
    assert said in found[1]


def run_tool(folder: Path, auditor: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run it with an environment whose python is this shell script."""
    python = folder / "bin/python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f"#!/bin/sh\n{auditor}\n")
    python.chmod(0o755)
    argv = [sys.executable, "-m", "tools.audit_locks", str(folder), *options]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "auditor",
    [
        "echo 'no route to host' >&2; exit 1",
        '[ "$2" = pip ] || { echo "no route to host" >&2; exit 1; }',
    ],
)
def test_where_no_service_answers_nothing_fails_and_nothing_is_claimed(
    tmp_path: Path, auditor: str
) -> None:
    done = run_tool(tmp_path, auditor)
    assert done.returncode == 0
    assert "*** NOT AUDITED: no answer from a vulnerability service" in done.stderr


def test_the_same_locks_are_asked_about_once_a_day_unless_they_are_vulnerable(
    tmp_path: Path,
) -> None:
    def answers(*packages: dict[str, object]) -> str:
        return f"[ $2 = pip ] || echo '{json.dumps({'dependencies': packages})}'"

    for _ in range(2):
        assert run_tool(tmp_path, answers(VULNERABLE), "--once-a-day").returncode == 1
    assert "no known vulnerability" in run_tool(tmp_path, answers(SOUND), "--once-a-day").stderr
    assert run_tool(tmp_path, answers(VULNERABLE), "--once-a-day").stderr == ""
    assert run_tool(tmp_path, answers(VULNERABLE)).returncode == 1
