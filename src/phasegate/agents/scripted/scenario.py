"""Load scenario files: the turns and steps of a scripted agent.

The agent itself imports this module, so it uses the standard library only. An example; each of
phase, workflow_phase, package, round and agent_index is optional and then matches anything:

    [[turns]]
    phase = "implement"
    steps = [
        { write = "hello.py", content = "print('hello')" },
        { commit = "{wp_id}: Add hello" },
        { result = "success" },
    ]
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
    "job_id",
    "wp_id",
    "success",
    "status",
    "summary",
    "commits",
    "artifacts",
    "pr_url",
    "duration_seconds",
    "next_steps",
    "error",
    "blocked_reason",
    "remediation",
    "cleanup_required",
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
    """The JSON response; `fields` override the default values."""

    status: str
    fields: Mapping[str, object]


ScenarioStep = (
    WriteStep | DeleteStep | RunStep | CommitStep | PrintStep | SleepStep | ExitStep | ResultStep
)


class ScenarioTurn(NamedTuple):
    """The steps of the agent in a matching situation; an absent key matches anything."""

    match: Mapping[str, tuple[str, ...]]
    steps: tuple[ScenarioStep, ...]

    def matches(self, situation: Mapping[str, str]) -> bool:
        return all(_matches_key(key, wanted, situation) for key, wanted in self.match.items())


def _matches_key(key: str, wanted: tuple[str, ...], situation: Mapping[str, str]) -> bool:
    # `phase` matches both a role such as `review` and a workflow phase such as `08-code-review`.
    keys = ("phase", "workflow_phase") if key == "phase" else (key,)
    return any(situation.get(key) in wanted for key in keys)


class AgentScenario(NamedTuple):
    name: str
    turns: tuple[ScenarioTurn, ...]

    def find_turn(self, situation: Mapping[str, str]) -> ScenarioTurn:
        """Return the first matching turn, or raise a ConfigError that lists the turns."""
        for turn in self.turns:
            if turn.matches(situation):
                return turn

        wanted = ", ".join(f"{key} {situation.get(key) or '(none)'}" for key in MATCH_KEYS)
        turns = [f"turn {n}: {_describe_turn(turn)}" for n, turn in enumerate(self.turns, 1)]
        raise ConfigError(
            f"{self.name}: no turn matches {wanted}. Available: {'; '.join(turns) or 'none'}",
            FORMAT_HINT,
        )


def _describe_turn(turn: ScenarioTurn) -> str:
    return ", ".join(f"{key} {' or '.join(wanted)}" for key, wanted in turn.match.items()) or "any"


def load_scenario(path: Path) -> AgentScenario:
    """Read and validate a scenario.

    An error is a ConfigError with the turn, the step and, if known, the line.
    """
    text = _read_scenario_text(path)
    data = _parse_scenario(path, text)
    if isinstance(data, dict):
        if data.keys() != {"turns"}:
            raise ConfigError(
                f"{path.name}: the file must contain only `turns`, not {_format_names(data)}",
                FORMAT_HINT,
            )
        data = data["turns"]

    if not isinstance(data, list):
        raise ConfigError(f"{path.name}: `turns` is not a list", FORMAT_HINT)

    lines = _find_turn_lines(text)
    turns = [
        _parse_turn(turn, _ScenarioLocation(path.name, number, lines.get(number)))
        for number, turn in enumerate(data, 1)
    ]
    return AgentScenario(path.name, tuple(turns))


def _read_scenario_text(path: Path) -> str:
    try:
        # Reading a pipe would block.
        if not path.is_file():
            problem = "is a folder, not a file" if path.is_dir() else "does not exist"
            raise ConfigError(f"the scenario {path} {problem}", FORMAT_HINT)

        if path.stat().st_size > MAX_SCENARIO_BYTES:
            raise ConfigError(f"{path} is larger than {MAX_SCENARIO_BYTES} bytes", FORMAT_HINT)
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", FORMAT_HINT) from None


def _parse_scenario(path: Path, text: str) -> object:
    if path.suffix == ".json":
        loads: Callable[[str], object] = json.loads
    else:
        # Imported here, because JSON does not need it.
        from tomllib import loads

    try:
        return loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path.name}: {error}", FORMAT_HINT) from None


def _find_turn_lines(text: str) -> dict[int, int]:
    """Map each turn to the line of its `[[turns]]`; the TOML parser does not keep them."""
    lines = [
        number
        for number, line in enumerate(text.split("\n"), 1)
        if re.match(r"\s*\[\[\s*turns\s*\]\]", line)
    ]
    return dict(enumerate(lines, 1))


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
    parsed_steps = [
        _parse_step(step, location._replace(step=number)) for number, step in enumerate(steps, 1)
    ]
    return ScenarioTurn(match, tuple(parsed_steps))


def _parse_match_values(key: str, value: object, location: _ScenarioLocation) -> tuple[str, ...]:
    """Parse one value or a list of values, as text; some keys require numbers."""
    values = value if isinstance(value, list) else [value]
    is_number = key in ("round", "agent_index")
    kind = int if is_number else str
    if not values or any(type(item) is not kind for item in values):
        name = "number" if is_number else "text"
        raise location.make_error(f"`{key}` must be a {name}, or a list of them")

    return tuple(str(item) for item in values)


def _parse_step(data: object, location: _ScenarioLocation) -> ScenarioStep:
    if not isinstance(data, dict):
        raise location.make_error('a step is a table such as { print = "done" }')

    names = [name for name in data if name in _STEP_PARSERS]
    if len(names) != 1:
        choices = f"one of {', '.join(_STEP_PARSERS)}"
        raise location.make_error(
            f"{_format_names(data)}: a step has exactly {choices}{_did_you_mean(data)}"
        )

    fields = _StepFields(data, names[0], location)
    step = _STEP_PARSERS[names[0]](fields)
    fields.refuse_unknown()

    return step


def _did_you_mean(data: Mapping[str, object]) -> str:
    # Imported here, because it is needed only for an error.
    from difflib import get_close_matches

    for name in data:
        for match in get_close_matches(str(name), _STEP_PARSERS, n=1):
            return f"; did you mean `{match}`?"

    return ""


def _format_names(names: Mapping[str, object] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "nothing"


class _StepFields:
    """The fields of one step, which are taken one by one; remaining fields are an error."""

    def __init__(self, data: Mapping[str, object], name: str, location: _ScenarioLocation) -> None:
        self._data = dict(data)
        self.name = name
        self.location = location

    def take_text(self, key: str) -> str:
        value = self._data.pop(key, None)
        if not isinstance(value, str):
            raise self.location.make_error(f"`{self.name}` needs `{key}`, a string")
        return value

    def take_choice(self, key: str, allowed: tuple[str, ...]) -> str:
        value = self.take_text(key)
        if value not in allowed:
            raise self.location.make_error(
                f"`{key}` must be one of {', '.join(allowed)}, not {value!r}"
            )
        return value

    def take_texts(self, key: str) -> tuple[str, ...]:
        value = self._data.pop(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.location.make_error(f"`{key}` must be a list of strings")
        return tuple(value)

    def is_list(self, key: str) -> bool:
        return isinstance(self._data.get(key), list)

    def take_flag(self, key: str) -> bool:
        value = self._data.pop(key, False)
        if not isinstance(value, bool):
            raise self.location.make_error(f"`{key}` must be true or false")
        return value

    def take_number(self, key: str, maximum: float, whole: bool = False) -> float:
        value = self._data.pop(key, None)
        if (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or (whole and isinstance(value, float))
            or not 0 <= value <= maximum
        ):
            kind = "whole number" if whole else "number"
            raise self.location.make_error(f"`{key}` must be a {kind} from 0 to {maximum:g}")

        return value

    def take_known(self, known: tuple[str, ...]) -> Mapping[str, object]:
        """Take those of the given fields that are present; refuse values that JSON cannot
        represent.
        """
        fields = {key: self._data.pop(key) for key in known if key in self._data}

        try:
            json.dumps(fields, allow_nan=False)
        except (TypeError, ValueError) as error:
            # For instance a TOML date.
            raise self.location.make_error(f"the response cannot be JSON: {error}") from None

        return fields

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
