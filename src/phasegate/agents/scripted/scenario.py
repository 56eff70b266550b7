"""Scenario files: what a scripted agent does, turn by turn.

Standard library only: the agent itself loads this.

[[turns]] phase = "implement"         # each of phase, workflow_phase, package, round and
agent_index may be left out: any steps = [{ write = "hello.py", content = "print('hello')" }, {
commit = "{wp_id}: Add hello" }, { result = "success" }]
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from phasegate.errors import ConfigError

MAX_SCENARIO_BYTES = 16_000_000
FORMAT_HINT = "docs/how-to/script-an-agent.md has the format"
MATCH_KEYS = ("phase", "workflow_phase", "package", "round", "agent_index")
VERDICTS = ("PASS", "NEEDS_REVISION", "NEEDS_CHANGES", "REJECTED", "MAJOR_ISSUES")
TASK_STATUSES = ("COMPLETED", "FAILED")
TASK_STATUS_PREFIX = "<task_status id="
RESULT_STATUSES = {"success": "completed", "blocked": "blocked"}
RESPONSE_FIELDS = (
    *(
        "job_id",
        "wp_id",
        "success",
        "status",
        "summary",
        "commits",
        "artifacts",
        "pr_url",
        "duration_seconds",
    ),
    *("next_steps", "error", "blocked_reason", "remediation", "cleanup_required"),
)


class WriteStep(NamedTuple):
    path: str
    content: str
    append: bool


class DeleteStep(NamedTuple):
    path: str


class RunStep(NamedTuple):
    argv: tuple[str, ...]
    may_fail: bool


class CommitStep(NamedTuple):
    message: str
    paths: tuple[str, ...]


class PrintStep(NamedTuple):
    text: str
    to_stderr: bool


class SleepStep(NamedTuple):
    seconds: float


class ExitStep(NamedTuple):
    status: int


class ResultStep(NamedTuple):
    """The JSON response; `fields` are JSON values that replace ours."""

    status: str
    fields: Mapping[str, object]


ScenarioStep = (
    WriteStep | DeleteStep | RunStep | CommitStep | PrintStep | SleepStep | ExitStep | ResultStep
)


class ScenarioTurn(NamedTuple):
    """What the agent does when it is called in a situation that matches.

    A key that is not there matches anything.
    """

    match: Mapping[str, tuple[str, ...]]
    steps: tuple[ScenarioStep, ...]

    def matches(self, situation: Mapping[str, str]) -> bool:
        return all(_matches_key(key, wanted, situation) for key, wanted in self.match.items())


def _matches_key(key: str, wanted: tuple[str, ...], situation: Mapping[str, str]) -> bool:
    # "phase" is the word for both: `review`, and the workflow's `08-code-review`.
    keys = ("phase", "workflow_phase") if key == "phase" else (key,)
    return any(situation.get(key) in wanted for key in keys)


class AgentScenario(NamedTuple):
    name: str
    turns: tuple[ScenarioTurn, ...]

    def find_turn(self, situation: Mapping[str, str]) -> ScenarioTurn:
        """The first turn that fits; a ConfigError that says what was looked for when none does."""
        found = next((turn for turn in self.turns if turn.matches(situation)), None)
        if found is not None:
            return found

        asked = ", ".join(f"{key} {situation.get(key) or '(none)'}" for key in MATCH_KEYS)
        have = "; ".join(
            f"turn {number}: {_describe_turn(turn)}" for number, turn in enumerate(self.turns, 1)
        )
        raise ConfigError(
            f"{self.name}: no turn fits {asked}. There is: {have or 'no turn at all'}", FORMAT_HINT
        )


def _describe_turn(turn: ScenarioTurn) -> str:
    return ", ".join(f"{key} {' or '.join(wanted)}" for key, wanted in turn.match.items()) or "any"


def load_scenario(path: Path) -> AgentScenario:
    """Read and check a scenario.

    What is wrong is a ConfigError with the turn, the step and, where known, the line.
    """
    text = _read_scenario_text(path)
    data = _parse_scenario(path, text)
    if isinstance(data, dict):
        turns = data.get("turns")
    else:
        turns = data

    if isinstance(data, dict) and data.keys() != {"turns"}:
        raise ConfigError(
            f"{path.name}: the file holds `turns` and nothing else, not {_format_names(data)}",
            FORMAT_HINT,
        )

    if not isinstance(turns, list):
        raise ConfigError(f"{path.name}: `turns` is not a list", FORMAT_HINT)

    lines = _find_turn_lines(text)
    return AgentScenario(
        path.name,
        tuple(
            _parse_turn(turn, _ScenarioLocation(path.name, n, lines.get(n)))
            for n, turn in enumerate(turns, 1)
        ),
    )


def _read_scenario_text(path: Path) -> str:
    try:
        # A pipe would be waited for
        if not path.is_file():
            if path.is_dir():
                what = "is a folder, and a file is meant"
            else:
                what = "is not there"

            raise ConfigError(f"the scenario {path} {what}", FORMAT_HINT)

        if path.stat().st_size > MAX_SCENARIO_BYTES:
            raise ConfigError(f"{path} is larger than {MAX_SCENARIO_BYTES} bytes", FORMAT_HINT)
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", FORMAT_HINT) from None


def _parse_scenario(path: Path, text: str) -> object:
    if path.suffix == ".json":
        loads: Callable[[str], object] = json.loads
    else:
        # Not needed for JSON
        from tomllib import loads

    try:
        return loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path.name}: {error}", FORMAT_HINT) from None


def _find_turn_lines(text: str) -> dict[int, int]:
    """Line numbers of `[[turns]]`, by turn: the TOML reader does not keep them."""
    heads = [
        number
        for number, line in enumerate(text.split("\n"), 1)
        if re.match(r"\s*\[\[\s*turns\s*\]\]", line)
    ]
    return dict(enumerate(heads, 1))


class _ScenarioLocation(NamedTuple):
    file: str
    turn: int
    line: int | None
    step: int | None = None

    def make_error(self, message: str) -> ConfigError:
        line = f":{self.line}" if self.line else ""
        step = f", step {self.step}" if self.step else ""
        return ConfigError(f"{self.file}{line}: turn {self.turn}{step}: {message}", FORMAT_HINT)


def _parse_turn(data: object, location: _ScenarioLocation) -> ScenarioTurn:
    if not isinstance(data, dict):
        raise location.make_error("a turn is a table with `steps`")

    unknown = [key for key in data if key not in (*MATCH_KEYS, "steps")]
    if unknown:
        raise location.make_error(
            f"unknown {_format_names(unknown)}; a turn has {', '.join(MATCH_KEYS)} and steps"
        )

    steps = data.get("steps")
    if not isinstance(steps, list):
        raise location.make_error("`steps` is missing or not a list")

    match = {
        key: _parse_match_values(key, data[key], location) for key in MATCH_KEYS if key in data
    }
    return ScenarioTurn(
        match,
        tuple(
            _parse_step(step, location._replace(step=number))
            for number, step in enumerate(steps, 1)
        ),
    )


def _parse_match_values(key: str, value: object, location: _ScenarioLocation) -> tuple[str, ...]:
    """One value or a list of them; numbers where numbers are meant."""
    if isinstance(value, list):
        values = value
    else:
        values = [value]

    kind = int if key in ("round", "agent_index") else str
    if not values or any(type(one) is not kind for one in values):
        raise location.make_error(
            f"`{key}` is a {'number' if kind is int else 'text'}, or a list of them"
        )

    return tuple(str(one) for one in values)


def _parse_step(data: object, location: _ScenarioLocation) -> ScenarioStep:
    if not isinstance(data, dict):
        raise location.make_error('a step is a table such as { print = "done" }')

    names = [name for name in data if name in _STEP_PARSERS]
    if len(names) != 1:
        what = f"one of {', '.join(_STEP_PARSERS)}"
        raise location.make_error(
            f"{_format_names(data)}: a step has exactly {what}{_did_you_mean(data)}"
        )

    fields = _StepFields(data, names[0], location)
    step = _STEP_PARSERS[names[0]](fields)
    fields.refuse_unknown()

    return step


def _did_you_mean(data: Mapping[str, object]) -> str:
    # Only on the way to an error
    from difflib import get_close_matches

    near = [close for name in data for close in get_close_matches(str(name), _STEP_PARSERS, n=1)]
    if near:
        return f"; did you mean `{near[0]}`?"
    return ""


def _format_names(names: Mapping[str, object] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "nothing"


class _StepFields:
    """The fields of one step, taken one by one; what is left over in the end is an error."""

    def __init__(self, data: Mapping[str, object], name: str, location: _ScenarioLocation) -> None:
        self._data = dict(data)
        self.name = name
        self.location = location

    def take_text(self, key: str) -> str:
        value = self._data.pop(key, None)
        if not isinstance(value, str):
            raise self.location.make_error(f"`{self.name}` needs `{key}`, a text")
        return value

    def take_choice(self, key: str, allowed: tuple[str, ...]) -> str:
        value = self.take_text(key)
        if value not in allowed:
            raise self.location.make_error(f"`{key}` is one of {', '.join(allowed)}, not {value!r}")
        return value

    def take_texts(self, key: str) -> tuple[str, ...]:
        value = self._data.pop(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.location.make_error(f"`{key}` is a list of texts")
        return tuple(value)

    def is_list(self, key: str) -> bool:
        return isinstance(self._data.get(key), list)

    def take_flag(self, key: str) -> bool:
        value = self._data.pop(key, False)
        if not isinstance(value, bool):
            raise self.location.make_error(f"`{key}` is true or false")
        return value

    def take_number(self, key: str, maximum: float, whole: bool = False) -> float:
        value = self._data.pop(key, None)
        fits = (
            isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= maximum
        )
        if not fits or (whole and not isinstance(value, int)):
            raise self.location.make_error(
                f"`{key}` is a {'whole ' if whole else ''}number from 0 to {maximum:g}"
            )

        assert isinstance(value, int | float)
        return value

    def take_known(self, known: tuple[str, ...]) -> Mapping[str, object]:
        """Those of the known fields that are there; all of them can be JSON."""
        found = {key: self._data.pop(key) for key in known if key in self._data}

        try:
            json.dumps(found, allow_nan=False)
        except (TypeError, ValueError) as error:
            # A TOML date, for instance
            raise self.location.make_error(f"the response cannot be JSON: {error}") from None

        return found

    def refuse_unknown(self) -> None:
        if self._data:
            raise self.location.make_error(
                f"`{self.name}` does not take {_format_names(self._data)}"
            )


def _parse_run_step(fields: _StepFields) -> RunStep:
    if fields.is_list("run"):
        argv = fields.take_texts("run")
    else:
        argv = ("sh", "-c", fields.take_text("run"))

    if not argv:
        raise fields.location.make_error("`run` needs a command")
    return RunStep(argv, fields.take_flag("may_fail"))


def _parse_task_step(fields: _StepFields) -> PrintStep:
    return make_task_status_step(
        fields.take_text("task"), fields.take_choice("status", TASK_STATUSES)
    )


def make_task_status_step(task: str, status: str) -> PrintStep:
    return PrintStep(f'{TASK_STATUS_PREFIX}"{task}">{status}</task_status>', to_stderr=False)


def _parse_result_step(fields: _StepFields) -> ResultStep:
    return ResultStep(
        RESULT_STATUSES[fields.take_choice("result", tuple(RESULT_STATUSES))],
        fields.take_known(RESPONSE_FIELDS),
    )


_MAX_SLEEP_S = 86_400.0
_STEP_PARSERS: Mapping[str, Callable[[_StepFields], ScenarioStep]] = {
    "write": lambda fields: WriteStep(
        fields.take_text("write"), fields.take_text("content"), append=False
    ),
    "append": lambda fields: WriteStep(
        fields.take_text("append"), fields.take_text("content"), append=True
    ),
    "delete": lambda fields: DeleteStep(fields.take_text("delete")),
    "run": _parse_run_step,
    "commit": lambda fields: CommitStep(fields.take_text("commit"), fields.take_texts("paths")),
    "print": lambda fields: PrintStep(fields.take_text("print"), to_stderr=False),
    "print_stderr": lambda fields: PrintStep(fields.take_text("print_stderr"), to_stderr=True),
    "sleep_s": lambda fields: SleepStep(fields.take_number("sleep_s", _MAX_SLEEP_S)),
    "exit": lambda fields: ExitStep(int(fields.take_number("exit", 255, whole=True))),
    "result": _parse_result_step,
    "verdict": lambda fields: PrintStep(
        f"<review>{fields.take_choice('verdict', VERDICTS)}</review>", to_stderr=False
    ),
    "task": _parse_task_step,
}
