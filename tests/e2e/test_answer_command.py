"""`phasegate answer parse` as people and programs call it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "phasegate", "answer", "parse", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)


@pytest.mark.demand("P6.n")
def test_a_refused_answer_is_exit_1_with_the_reason() -> None:
    done = run("--phase", "review", stdin=b"LGTM\n")
    said = json.loads(done.stdout)
    assert done.returncode == 1
    assert (said["verdict"], said["error"]) == (None, "MissingReviewMarker")
    assert said["reason"]


@pytest.mark.demand("P6.a", "P6.b", "D7.c")
def test_an_answer_is_printed_as_one_json_object(tmp_path: Path) -> None:
    result = {"job_id": "j", "wp_id": "WP01", "success": True, "status": "completed"}
    text = f'<thought>hm</thought>\nDone.\n<task_status id="1.1">COMPLETED</task_status>\n{json.dumps(result)}\n'
    (tmp_path / "answer.txt").write_text(text)
    done = run("--phase", "implement", str(tmp_path / "answer.txt"))
    said = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"\n") == 1
    assert (said["verdict"], said["error"]) == (None, None)
    assert said["task_statuses"] == {"1.1": "COMPLETED"}
    assert said["result"] == result
    assert "hm" not in said["text"]


def test_stdin_may_be_a_dash_and_need_not_be_utf8() -> None:
    done = run("--phase", "review", "--json", "-", stdin=b"\xff\x1b[1m\n<review>PASS</review>\n")
    assert done.returncode == 0
    assert json.loads(done.stdout)["verdict"] == "PASS"
    assert json.loads(done.stdout)["text"].startswith("\ufffd\n")


@pytest.mark.parametrize(
    "arguments", [[], ["--phase", "deploy"], ["--phase", "PLAN"], ["--phase", "plan", "no-such-file"]]
)
def test_wrong_usage_is_exit_2(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr


def test_the_help_has_an_example() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert b"phasegate answer parse --phase review" in done.stdout
