"""The audit trail of one job: who did what, and how we know it.

One JSON object per line; the lines form a hash chain.

The fields of a line, in order: `ts`, `actor`, `job`, `action`, the action's own, `agent`, `source`,
`prev`, `entry_hash`. The actor is the kind of program, `agent` its configured name. `entry_hash` is
SHA-256 over every byte of the line before it, and `prev` is the hash of the previous line. The hash
before the first line is derived from feature and job, so that no trail can replace another. (The
field is not called `hash`: the interface specification has a field of that name in `read_spec`.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

import msgspec

from phasegate.core.audit.chain import ChainBreak, encode_fields

TrailValue = str | int | float | bool | None | list[str]
RESERVED_FIELDS = frozenset(
    {"ts", "actor", "job", "action", "agent", "source", "prev", "entry_hash"}
)
# The actor of our own actions
PHASEGATE = "phasegate"

_TRAIL_DOMAIN = b"phasegate job trail 1"
_HASH_KEY = b',"entry_hash":"'
_HASH_LENGTH = 64
_TAIL_LENGTH = len(_HASH_KEY) + _HASH_LENGTH + len(b'"}')
_PREV_LENGTH = len(b'"') + _HASH_LENGTH + len(b'"')


class Source(StrEnum):
    """How an action became known: observed, reported, derived from git, or handed over."""

    # Observed by us: processes, files, the clock
    OBSERVED = "observed"
    # Reported by the agent
    REPORTED = "reported"
    # Derived by us from git
    DERIVED = "derived"
    # Handed over to the agent; whether it was read is not known
    GIVEN = "given"


class Action(StrEnum):
    """Actions in a job. The first five are those of the interface specification."""

    READ_SPEC = "read_spec"
    WRITE_FILE = "write_file"
    RUN_TESTS = "run_tests"
    COMMIT = "commit"
    EXIT = "exit"
    START = "start"
    DELETE_FILE = "delete_file"
    RUN_CHECK = "run_check"
    WRITE_ARTIFACT = "write_artifact"
    ANSWER = "answer"
    FALSE_CLAIM = "false_claim"
    SCOPE_VIOLATION = "scope_violation"
    BLOCKER = "blocker"
    STOP_REQUESTED = "told_to_stop"
    KILLED = "killed"
    RETRY = "retry"
    RECOVERED = "recovered"
    RUN_COMMAND = "run_command"
    USE_TOOL = "use_tool"
    USAGE = "usage"
    NOTICE = "notice"
    REACH_HOST = "reach_host"


class TrailEvent(msgspec.Struct, frozen=True):
    """One action: its actor, kind, source and own fields."""

    actor: str
    action: Action
    source: Source
    fields: Mapping[str, TrailValue] = {}
    # Configured name of the agent; empty for other actors
    agent: str = ""


class TrailActor(NamedTuple):
    """An actor, as the interface specification spells it, and the agent's configured name."""

    actor: str
    agent: str

    def build_event(self, action: Action, source: Source, **fields: TrailValue) -> TrailEvent:
        return TrailEvent(
            actor=self.actor, action=action, source=source, fields=fields, agent=self.agent
        )


def build_agent_actor(harness: str, agent: str) -> TrailActor:
    """Return the actor of an agent: `agent:claude-code`, independent of its configured name."""
    return TrailActor(f"agent:{harness.replace('_', '-')}", agent)


PHASEGATE_ACTOR = TrailActor(PHASEGATE, "")


class TrailLine(NamedTuple):
    """A line of a trail, and its hash, which the next line contains."""

    line: bytes
    hash: str


class TrailScan(NamedTuple):
    """The result of scanning a trail.

    It has the complete lines, the hash of the last of them, the bytes of an incomplete line, and
    the first broken line.
    """

    lines: int
    bytes: int
    hash: str
    partial_bytes: int
    broken: ChainBreak | None


def trail_origin_hash(feature: str, job: str) -> str:
    """Return the hash before the first line of a job's trail."""
    return sha256(encode_fields((_TRAIL_DOMAIN, feature.encode(), job.encode()))).hexdigest()


def encode_entry(ts: str, job: str, event: TrailEvent) -> bytes:
    """Encode an entry without its hashes, always as a single line."""
    if reserved := RESERVED_FIELDS.intersection(event.fields):
        raise ValueError(f"field {min(reserved)} belongs to every entry")

    record: dict[str, TrailValue] = {
        "ts": ts,
        "actor": event.actor,
        "job": job,
        "action": event.action,
        **event.fields,
    }
    if event.agent:
        record["agent"] = event.agent
    record["source"] = event.source

    return _to_json(record)


def chain_entry(previous_hash: str, entry: bytes) -> TrailLine:
    """Return an entry as a trail line that contains the previous line's hash and its own."""
    body = b'%b,"prev":"%b"' % (entry[:-1], previous_hash.encode())
    digest = sha256(body).hexdigest()
    return TrailLine(body + _HASH_KEY + digest.encode() + b'"}\n', digest)


def extract_line_hash(line: bytes) -> str:
    """Return the hash at the end of a line."""
    return line.rstrip(b"\n")[-_HASH_LENGTH - 2 : -2].decode()


def _to_json(record: dict[str, TrailValue]) -> bytes:
    """Encode as ASCII JSON, so that no text puts line ends or terminal controls into the trail."""
    try:
        text = msgspec.json.encode(record)
    except UnicodeEncodeError:
        # A file name that is not UTF-8: escape it, so that the trail stays readable
        return _to_json(
            {_escape_surrogates(key): _escape_value(value) for key, value in record.items()}
        )

    if text.isascii():
        return text
    return json.dumps(record, separators=(",", ":")).encode()


def _escape_value(value: TrailValue) -> TrailValue:
    if isinstance(value, str):
        return _escape_surrogates(value)
    if isinstance(value, list):
        return [_escape_surrogates(text) for text in value]
    return value


def _escape_surrogates(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def scan_trail(data: bytes, previous: str) -> TrailScan:
    """Check a trail line by line.

    An incomplete last line is not a break, because a crash can leave one.
    """
    complete, newline, partial = data.rpartition(b"\n")
    count = 0

    for line in complete.split(b"\n") if newline else ():
        count += 1
        problem = _find_line_problem(line, previous)

        if problem:
            return TrailScan(
                lines=count - 1,
                bytes=0,
                hash=previous,
                partial_bytes=len(partial),
                broken=ChainBreak(count, problem),
            )

        previous = extract_line_hash(line)

    return TrailScan(
        lines=count,
        bytes=len(complete) + len(newline),
        hash=previous,
        partial_bytes=len(partial),
        broken=None,
    )


def _find_line_problem(line: bytes, previous: str) -> str:
    """Return why a line does not continue the trail; empty if it does."""
    body = line[:-_TAIL_LENGTH]
    key = line[-_TAIL_LENGTH : -_HASH_LENGTH - 2]
    tail = line[-_HASH_LENGTH - 2 :]
    if key != _HASH_KEY or tail[-2:] != b'"}':
        return "was not written by phasegate"
    if sha256(body).hexdigest().encode() != tail[:-2]:
        return "was changed: its hash does not match its bytes"
    if body[-_PREV_LENGTH:] != b'"' + previous.encode() + b'"':
        return "does not follow the previous line: one was removed, added or moved"

    return ""


_SCRIPTS = r"(?:npm|pnpm|yarn|bun)(?: run)?(?: -\S+)* "
_TESTS = re.compile(
    r"\b(?:pytest|unittest|nose2|tox|nox|jest|vitest|mocha|ctest|rspec|phpunit|cargo nextest)\b"
    r"|\b(?:cargo|go|dotnet|mvn|gradle|gradlew|deno) (?:[\w:.-]+ )*?test\b"
    rf"|\b{_SCRIPTS}test\b|\bmake (?:\S+ )*test"
)
_CHECKS = re.compile(
    r"\b(?:ruff|flake8|pylint|mypy|pyright|eslint|tsc|prettier|golangci-lint|staticcheck|rubocop)\b"
    r"|\bcargo (?:check|build|clippy|fmt)\b|\bgo (?:vet|build)\b"
    rf"|\b{_SCRIPTS}(?:lint|typecheck|build)\b"
    r"|\bmake (?:\S+ )*(?:check|lint|build)\b"
)
_MAX_COMMAND_CHARS = 2_000


def classify_command(line: str) -> Action:
    """Return the action of a command line; tests take precedence if it has several commands."""
    line = line[:_MAX_COMMAND_CHARS]
    if _TESTS.search(line):
        return Action.RUN_TESTS
    if _CHECKS.search(line):
        return Action.RUN_CHECK

    return Action.RUN_COMMAND
