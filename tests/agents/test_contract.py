"""The contract of the harnesses, with the real programs in the real sandbox and a stand-in for the model (D3, D9, D10)."""

from __future__ import annotations

import os
import re
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from phasegate.agents.port import Ending, EventKind
from phasegate.core.agents.harnesses import HARNESSES
from phasegate.sandbox.request import SandboxLevel
from support.real_agents import (
    KEY,
    SUBJECTS,
    Configured,
    Ran,
    Room,
    Subject,
    make_room,
    processes_tagged,
    run_real,
    strongest,
)
from support.sandboxed import processes_with
from support.standin import Cut, Fail, Garble, Hang, Say, Seen, Shell, Standin, Turn, Write
from support.standin.server import LONG

CANARY = "canary-0815"
ANSWER = 'The work is done: é, <b> & "quotes".\n\n```json\n{}\n```'
# Everything that quoting, JSON and XML could spoil, 300 KB of it.
HOSTILE_LINE = "<file name='a &amp; b'>\\n \"$(id)\" `x` é 漢字 😀 %s {{X}} @README.md @@ -0 +1 @@ a@b.c @.git \t</file>\n"
LONG_PROMPT = f"<prompt>\n{HOSTILE_LINE * (300_000 // len(HOSTILE_LINE.encode()) + 1)}</prompt>\n"
PROMPT = "<prompt>Do what the stand-in says.</prompt>\n"


class RoundTrip(NamedTuple):
    ran: Ran
    room: Room
    seen: list[Seen]


def round_trip(subject: Subject, folder: Path) -> RoundTrip:
    """One run with a long prompt, two tools and an answer."""
    room = make_room(folder, subject)
    turns = (
        Write("src/hello.txt", "hello\n"),
        Shell("env > env.txt; git add -A src; git status > status.txt"),
    )
    with Standin(*turns, Say(ANSWER)) as model:
        ran = run_real(room, model.url, LONG_PROMPT, ours={"OUR_SECRET": CANARY})
    return RoundTrip(ran, room, model.seen)


def a_prompt_of_300_kb_arrives_at_the_model_byte_for_byte(trip: RoundTrip) -> None:
    assert len(LONG_PROMPT.encode()) > 300_000
    first = trip.seen[0]
    assert first.raw, trip.ran
    # One would read the files that are named behind an `@`: there it comes as XML has it.
    assert any(LONG_PROMPT.strip() in text.replace("&#64;", "@") for text in first.strings), (
        trip.ran
    )
    assert not any("A project" in text for text in first.strings), (
        "what the prompt names was read besides"
    )


def a_run_to_the_end_is_completed_and_its_answer_is_what_the_model_said_last(
    trip: RoundTrip,
) -> None:
    assert trip.ran.report.ending is Ending.COMPLETED, trip.ran
    assert trip.ran.report.answer.strip() == ANSWER.strip()


def the_tools_of_the_agent_work_in_the_checkout(trip: RoundTrip) -> None:
    assert (trip.room.checkout / "src/hello.txt").read_text() == "hello\n", trip.ran
    assert "src/hello.txt" in (trip.room.checkout / "status.txt").read_text()  # git works inside


def what_the_agent_does_is_heard_live_in_one_language(trip: RoundTrip) -> None:
    files = [Path(event.path).name for event in trip.ran.of_kind(EventKind.FILE)]
    commands = [event.text for event in trip.ran.of_kind(EventKind.COMMAND)]
    assert files == ["hello.txt"], trip.ran.events
    assert any("env.txt" in command for command in commands), trip.ran.events
    assert ANSWER.splitlines()[0] in "".join(
        event.text for event in trip.ran.of_kind(EventKind.TEXT)
    )


def what_was_used_is_added_up(trip: RoundTrip) -> None:
    usage = trip.ran.report.usage
    assert usage is not None
    assert usage.input_tokens >= 3 * 101
    assert usage.output_tokens >= 3 * 23


def the_key_reaches_the_model_and_nothing_else_of_ours_reaches_the_agent(trip: RoundTrip) -> None:
    assert any(KEY in value for value in trip.seen[0].headers.values())
    inside = (trip.room.checkout / "env.txt").read_text()
    assert "AGILEPLUS_JOB_ID=" in inside
    assert CANARY not in inside
    assert os.environ["HOME"] not in inside


def nothing_of_a_finished_run_is_left(trip: RoundTrip) -> None:
    assert processes_tagged(trip.ran.tag) == []
    outside = {path.name for path in trip.room.root.iterdir() if not path.name.startswith("job-")}
    assert outside == {"checkout"}
    changed = {path.name for path in trip.room.checkout.iterdir()}
    known = {
        "README.md",
        ".git",
        "src",
        "env.txt",
        "status.txt",
        "WP01.md",
        "spec.md",
        "plan.md",
        "prompt.xml",
    }
    assert changed == known  # no agent leaves files of its own in the checkout


CLAIMS = (
    a_prompt_of_300_kb_arrives_at_the_model_byte_for_byte,
    a_run_to_the_end_is_completed_and_its_answer_is_what_the_model_said_last,
    the_tools_of_the_agent_work_in_the_checkout,
    what_the_agent_does_is_heard_live_in_one_language,
    what_was_used_is_added_up,
    the_key_reaches_the_model_and_nothing_else_of_ours_reaches_the_agent,
    nothing_of_a_finished_run_is_left,
)


@pytest.mark.demand("P5.a", "D3.a", "D3.b", "D3.c", "D3.e", "D3.f")
@pytest.mark.parametrize("subject", sorted(SUBJECTS), indirect=True)
def test_a_whole_run_keeps_every_promise(subject: Subject, tmp_path: Path) -> None:
    trip = round_trip(subject, tmp_path)
    for claim in CLAIMS:
        claim(trip)


# --- how it goes wrong


def play(subject: Subject, folder: Path, *turns: Turn, **options: object) -> tuple[Ran, Standin]:
    with Standin(*turns) as model:
        return run_real(make_room(folder, subject), model.url, PROMPT, **options), model  # type: ignore[arg-type]


IMPATIENT = ("codex", "opencode")  # we stop them: they would wait for as long as they are told to
HTTP = [
    (Fail(400), Ending.FAILED, "the stand-in says 400"),
    (Fail(401), Ending.NOT_RUNNABLE, "401"),
    (Fail(429, retry_after_s=3600), Ending.RATE_LIMITED, "429"),
    (Fail(500), Ending.TRANSIENT, "500|high demand"),  # one of them has its own words for it
]


@pytest.mark.demand("D10.a", "D10.b")
@pytest.mark.parametrize(("failure", "ending", "named"), HTTP, ids=["400", "401", "429", "500"])
def test_an_error_of_the_model_is_told_apart_and_named(
    subject: Subject,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: Fail,
    ending: Ending,
    named: str,
) -> None:
    for (
        impatient
    ) in IMPATIENT:  # both wait as long as they are told to, and would do so for an hour
        monkeypatch.setattr(f"phasegate.agents.programs.{impatient}.MAX_RETRY_WAIT_S", 3.0)
    ran, model = play(subject, tmp_path, failure)
    assert model.questions, ran
    assert ran.report.ending is ending, ran
    assert re.search(named, ran.report.reason), ran
    assert bool(ran.report.remedy) is (ending is Ending.NOT_RUNNABLE)
    assert (
        not ran.finished.timed_out or subject.kind in IMPATIENT
    )  # stopped by us, it may not listen: it is killed
    assert processes_tagged(ran.tag) == []


@pytest.mark.parametrize("subject", ["qwen"], indirect=True)
def test_a_refused_key_is_told_apart_by_the_slowest_too(subject: Subject, tmp_path: Path) -> None:
    ran, _ = play(subject, tmp_path, Fail(401))
    assert ran.report.ending is Ending.NOT_RUNNABLE, ran


def test_a_failure_that_passes_is_no_failure(subject: Subject, tmp_path: Path) -> None:
    ran, _ = play(subject, tmp_path, Fail(500, times=1), Say("fine"))
    assert ran.report.ending in (Ending.COMPLETED, Ending.TRANSIENT), (
        ran
    )  # some try again by themselves
    assert (ran.report.answer.strip() == "fine") is (ran.report.ending is Ending.COMPLETED), ran


BROKEN = (Cut(), Cut(as_if_whole=True), Garble())


@pytest.mark.parametrize("subject", sorted(SUBJECTS), indirect=True)
def test_counts_of_tokens_that_are_none_do_not_undo_finished_work(
    subject: Subject, tmp_path: Path
) -> None:
    room = make_room(tmp_path, subject)
    with Standin(Write("src/hello.txt", "hello\n"), Say(ANSWER), counts_oddly=True) as model:
        ran = run_real(room, model.url, PROMPT)
    if (
        subject.kind == "codex"
    ):  # the program itself does not take such an answer from its model: that may pass
        assert ran.report.ending is Ending.TRANSIENT, ran
        assert "failed to parse ResponseCompleted" in ran.report.reason
        return
    assert (ran.report.ending, ran.report.answer.strip()) == (Ending.COMPLETED, ANSWER), ran
    assert (room.checkout / "src/hello.txt").read_text() == "hello\n", ran


@pytest.mark.parametrize("subject", sorted(SUBJECTS), indirect=True)
@pytest.mark.parametrize("broken", BROKEN, ids=["cut", "cut short", "garbled"])
def test_a_stream_that_breaks_is_worth_another_try(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Turn
) -> None:
    monkeypatch.setattr("phasegate.agents.programs.opencode.MAX_RETRY_WAIT_S", 20.0)
    ran, _ = play(subject, tmp_path, broken)
    if subject.kind == "claude_code" and isinstance(
        broken, Garble
    ):  # it leaves out what it cannot read
        assert (ran.report.ending, ran.report.answer) == (Ending.COMPLETED, LONG.text), ran
        return
    assert ran.report.ending is Ending.TRANSIENT, ran
    assert ran.report.reason
    assert not ran.finished.timed_out or subject.kind in IMPATIENT, ran
    assert processes_tagged(ran.tag) == []


@pytest.mark.demand("D3.k")
@pytest.mark.parametrize("subject", sorted(SUBJECTS), indirect=True)
def test_an_option_that_the_program_does_not_know_is_told_as_that(
    subject: Subject, tmp_path: Path
) -> None:
    def configured(url: str) -> Configured:
        found = subject.configured(url)
        return found._replace(command=(*(found.command or (subject.program,)), "--such-flag"))

    ran, model = play(subject._replace(configured=configured), tmp_path, Say(ANSWER))
    assert (ran.report.ending, model.questions) == (Ending.NOT_RUNNABLE, []), ran
    assert "does not know the option" in ran.report.reason
    assert re.search(
        "such-flag|that `opencode run` was given", ran.report.reason
    )  # one prints its help alone
    assert HARNESSES[subject.kind].install_instruction in ran.report.remedy


@pytest.mark.demand("D10.a")
@pytest.mark.parametrize("subject", ["qwen"], indirect=True)
def test_a_program_that_waits_at_a_limit_without_a_word_is_stopped(
    subject: Subject, tmp_path: Path
) -> None:
    ran, model = play(subject, tmp_path, Fail(429, retry_after_s=3600), first_output_timeout_s=25.0)
    assert model.questions, ran
    assert ran.report.ending is Ending.SILENT, ran
    assert processes_tagged(ran.tag) == []


@pytest.mark.demand("D10.a")
@pytest.mark.parametrize("subject", sorted(SUBJECTS), indirect=True)
def test_a_model_that_gives_no_sign_is_given_up_before_the_time_of_the_job(
    subject: Subject, tmp_path: Path
) -> None:
    ran, _ = play(subject, tmp_path, Hang(), first_output_timeout_s=15.0)
    assert ran.report.ending is Ending.SILENT, ran
    assert ran.finished.duration_s < 60
    assert processes_tagged(ran.tag) == []


@pytest.mark.demand("D9.a")
def test_a_model_that_says_nothing_is_ended_by_the_clock(subject: Subject, tmp_path: Path) -> None:
    ran, _ = play(subject, tmp_path, Hang(), timeout_s=15.0)
    assert ran.finished.sigterm_sent
    # Silent, so that the fallback agent gets the job
    assert ran.report.ending is Ending.SILENT, ran
    assert "no output from its model" in ran.report.reason
    assert processes_tagged(ran.tag) == []


@pytest.mark.demand("D9.a")
def test_commands_that_an_agent_started_end_with_it(subject: Subject, tmp_path: Path) -> None:
    token = f"token-{uuid.uuid4().hex}"
    lasting = "python3 -c 'import time; time.sleep(600)'"
    command = f"setsid {lasting} {token} >/dev/null 2>&1 & {lasting} {token}"
    began = threading.Event()
    ran, _ = play(
        subject, tmp_path, Shell(command), Say("x"), stop_when=lambda: wait_for_both(token, began)
    )
    assert began.is_set(), ran
    assert ran.finished.sigterm_sent
    assert ran.report.ending is not Ending.COMPLETED, ran
    assert processes_with(token) == []
    assert processes_tagged(ran.tag) == []


def wait_for_both(token: str, began: threading.Event) -> None:
    """Until both commands run, looked at now and then: looking without a pause would take the processor from them."""
    give_up_at_s = time.monotonic() + 200
    while time.monotonic() < give_up_at_s and not began.wait(0.2):
        if len(running(token)) >= 2:
            began.set()


def running(token: str) -> list[int]:
    """The commands themselves, without the shells that hold them in their own command line."""
    found = []
    for pid in processes_with(token):
        with suppress(OSError):  # it has just ended
            if Path(f"/proc/{pid}/comm").read_text().startswith("python"):
                found.append(pid)
    return found


@pytest.mark.skipif(
    strongest() is SandboxLevel.NONE, reason="not enforceable here: there is no sandbox"
)
def test_a_file_outside_the_checkout_is_refused_and_the_agent_hears_of_it(
    subject: Subject, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.txt"
    ran, model = play(
        subject, tmp_path, Shell(f"echo x > {outside} || echo REFUSED"), Say("went on")
    )
    assert not outside.exists()
    assert "REFUSED" in model.questions[-1].text, ran
    assert ran.report.ending is Ending.COMPLETED, ran
