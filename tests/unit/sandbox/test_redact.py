"""Secrets do not stay in what a job prints, however it is cut into pieces."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasegate.core.agents.secrets import MIN_SECRET_BYTES
from phasegate.sandbox.bounded_output import OutputStream
from phasegate.sandbox.environment import build_environment
from phasegate.sandbox.job import SandboxedJob
from phasegate.sandbox.redact import REDACTION_MARK, Redactor
from phasegate.sandbox.request import JobRequest, SandboxLevel

KEY = b"canary-key-0123456789"
SECRETS = st.lists(
    st.text("abc", min_size=MIN_SECRET_BYTES, max_size=12).map(str.encode), min_size=1, max_size=4
)


def redacted(chunks: list[bytes], secrets: list[bytes]) -> bytes:
    redactor = Redactor(secrets)
    return b"".join([*(redactor.feed(chunk) for chunk in chunks), redactor.flush()])


def test_every_cut_through_a_secret_is_caught() -> None:
    text = b"the key is " + KEY + b"; again " + KEY + b"."
    for first in range(len(text)):
        for second in range(first, len(text)):
            pieces = [text[:first], text[first:second], text[second:]]
            assert redacted(pieces, [KEY]) == b"the key is [redacted]; again [redacted]."


def test_the_control_a_redactor_without_memory_misses_it() -> None:
    half = len(KEY) // 2
    assert KEY in b"".join(piece.replace(KEY, REDACTION_MARK) for piece in (KEY[:half], KEY[half:]))


@given(SECRETS, st.lists(st.text("abcd", max_size=30).map(str.encode), max_size=12))
def test_no_secret_is_left_and_nothing_else_is_lost(
    secrets: list[bytes], chunks: list[bytes]
) -> None:
    shown = redacted(chunks, secrets)
    assert not any(secret in shown for secret in secrets)
    assert shown == redacted([b"".join(chunks)], secrets)
    kept = shown.split(REDACTION_MARK)
    whole, at = b"".join(chunks), 0
    for part in kept:
        at = whole.index(part, at) + len(part)


@given(SECRETS, st.lists(st.binary(max_size=30), max_size=8))
def test_what_holds_no_secret_passes_unchanged(secrets: list[bytes], chunks: list[bytes]) -> None:
    whole = b"".join(chunks)
    if not any(secret in whole for secret in secrets):
        assert redacted(chunks, secrets) == whole


def test_a_secret_that_begins_another_does_not_uncover_the_rest_of_it() -> None:
    longer = KEY + b"-and-more"
    assert redacted([KEY, b"-and-more"], [KEY, longer]) == REDACTION_MARK
    assert redacted([longer + b"!"], [KEY, longer]) == REDACTION_MARK + b"!"


def test_output_is_shown_at_once_unless_it_may_be_a_secret() -> None:
    redactor = Redactor([KEY])
    assert redactor.feed(b"a line\n") == b"a line\n"
    assert redactor.feed(b"canary") == b""
    assert redactor.feed(b" bird") == b"canary bird"


def test_short_values_are_left_alone() -> None:
    assert redacted([b"yes or no"], [b"yes", b""]) == b"yes or no"


@pytest.mark.parametrize("stream", OutputStream)
def test_neither_log_nor_memory_nor_listener_sees_a_secret_that_a_job_prints(
    tmp_path: Path, stream: OutputStream
) -> None:
    (tmp_path / "work").mkdir()
    code = (
        f"import os, sys, time\nkey = os.environ['KEY'].encode()\n"
        f"for byte in b'<' + key + b'>' + key: os.write({1 if stream is OutputStream.STDOUT else 2}, bytes([byte]))"
    )
    request = JobRequest(
        argv=(sys.executable, "-I", "-c", code),
        cwd=tmp_path / "work",
        folder=tmp_path / "job",
        tag=uuid.uuid4().hex,
        env=build_environment(values={"KEY": KEY.decode()}),
        level=SandboxLevel.NONE,
        stdout_log=tmp_path / "stdout.log",
        stderr_log=tmp_path / "stderr.log",
    )
    for secrets, shown in ((), b"<" + KEY + b">" + KEY), ((KEY,), b"<[redacted]>[redacted]"):
        heard: list[bytes] = []
        outcome = SandboxedJob(request._replace(secrets=secrets)).run(
            lambda _, chunk: heard.append(chunk)  # noqa: B023
        )
        assert b"".join(heard) == shown
        assert (outcome.stdout if stream is OutputStream.STDOUT else outcome.stderr).data == shown
        assert (tmp_path / f"{stream}.log").read_bytes() == shown
