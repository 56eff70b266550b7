"""`phasegate answer parse` as people and programs call it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.dispatch_project import approves, implements, make_project, turn
from support.entry import phasegate


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    done = phasegate("answer", "parse", *arguments, cwd=Path(), stdin=stdin)
    return subprocess.CompletedProcess(
        arguments, done.code, done.stdout.encode(), done.stderr.encode()
    )


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
    "arguments",
    [[], ["--phase", "deploy"], ["--phase", "PLAN"], ["--phase", "plan", "no-such-file"]],
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


ALL = ("PASS", "NEEDS_REVISION", "NEEDS_CHANGES", "REJECTED", "MAJOR_ISSUES")
ALLOWED = {
    "plan": ALL[:2],
    "challenge": ("PASS", "NEEDS_REVISION", "REJECTED"),
    "implement": (),
    "review": ("PASS", "NEEDS_CHANGES", "MAJOR_ISSUES"),
    "archive": ("PASS", "NEEDS_CHANGES", "MAJOR_ISSUES"),
}


def parsed(folder: Path, phase: str, text: str) -> dict[str, Any]:
    (folder / "answer.txt").write_bytes(text.encode())
    done = phasegate("answer", "parse", "--phase", phase, "answer.txt", cwd=folder)
    said: dict[str, Any] = done.json
    assert done.code == (1 if said["error"] else 0)
    return said


def judged(folder: Path, phase: str, text: str) -> tuple[str | None, str | None]:
    said = parsed(folder, phase, text)
    return said["verdict"], said["error"]


@pytest.mark.demand("P6.a", "P6.d", "P6.e", "P6.g")
@pytest.mark.parametrize("phase", ALLOWED)
def test_a_phase_has_its_verdicts_and_every_other_is_foreign(tmp_path: Path, phase: str) -> None:
    for verdict in ALL:
        marker = f"<review>{verdict}</review>\n"
        if verdict in ALLOWED[phase]:
            assert judged(tmp_path, phase, f"Words.\n\n{marker}") == (verdict, None)
            continue
        assert judged(tmp_path, phase, f"Words.\n\n{marker}") == (None, "ForeignVerdict")
        for own in ALLOWED[phase]:
            beside = f"<review>{own}</review>\n"
            assert judged(tmp_path, phase, beside + marker) == (None, "ForeignVerdict")
            assert judged(tmp_path, phase, marker + beside) == (None, "ForeignVerdict")


@pytest.mark.demand("P6.b", "P6.g")
def test_an_implementer_answers_with_task_statuses_and_a_result_and_no_verdict(
    tmp_path: Path,
) -> None:
    result = {"job_id": "j", "wp_id": "WP01", "success": True, "status": "completed"}
    tasks = {"1.1": "COMPLETED", "1.2": "FAILED", "12.3": "COMPLETED"}
    text = "".join(f'<task_status id="{id_}">{word}</task_status>\n' for id_, word in tasks.items())
    said = parsed(
        tmp_path,
        "implement",
        f'{text}<task_status id="1.4">DONE</task_status>\n{json.dumps(result)}\n',
    )
    assert (said["verdict"], said["error"]) == (None, None)
    assert said["task_statuses"] == tasks, "DONE is no status"
    assert said["result"] == result


@pytest.mark.demand("P6.i")
def test_escape_sequences_go_first_and_lines_end_at_lf_cr_and_crlf_alone(tmp_path: Path) -> None:
    passes = "<review>PASS</review>"
    for end in ("\n", "\r", "\r\n"):
        assert judged(tmp_path, "review", f"Words.{end}{passes}{end}") == ("PASS", None)
    for end in ("\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"):
        assert judged(tmp_path, "review", f"Words.{end}{passes}") == (None, "MissingReviewMarker")
    for coloured in (f"\x1b[32m{passes}\x1b[0m", f"\x1b]0;title\x07{passes}", f"\x1b[2K\r{passes}"):
        said = parsed(tmp_path, "review", f"Words.\n{coloured}\n")
        assert (said["verdict"], "\x1b" in said["text"]) == ("PASS", False)
    assert judged(tmp_path, "review", "<review>PA\x1b[0mSS</review>\n") == (
        None,
        "MissingReviewMarker",
    )


@pytest.mark.demand("P6.c")
def test_thoughts_reach_neither_people_nor_the_next_prompt(tmp_path: Path) -> None:
    made = make_project(tmp_path)
    more = implements("src/login.ts", round=2)
    more["steps"][0]["content"] = "export const again = true;\n"
    found = "1. [major] src/login.ts\n<thought>\na private doubt\n</thought>\n- Wrong: too short"
    made.play(
        implements("src/login.ts", round=1),
        more,
        turn("review", {"print": found}, {"verdict": "NEEDS_CHANGES"}, round=1),
        approves(),
    )
    assert made.command("dispatch", "WP01").code == 0
    jobs = made.jobs()
    assert (
        "a private doubt" in (made.project.jobs_folder / jobs[1].id / "stdout.log").read_text()
    ), "control: it was said"
    second = made.prompt(jobs[2].id)
    assert "- Wrong: too short" in second
    assert "a private doubt" not in second
    shown = made.command("show", jobs[1].id, "--answer").stdout
    assert "too short" in shown
    assert "a private doubt" not in shown
