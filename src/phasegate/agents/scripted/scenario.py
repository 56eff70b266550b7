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
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from phasegate.errors import ConfigError

MAX_SCENARIO_BYTES = 16_000_000
FORMAT_HINT = "see docs/how-to/script-an-agent.md for the format"
MATCH_KEYS = ("phase", "workflow_phase", "package", "round", "agent_index")
VERDICTS = ("PASS", "NEEDS_REVISION", "NEEDS_CHANGES", "REJECTED", "MAJOR_ISSUES")
TASK_STATUSES = ("COMPLETED", "FAILED")
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


class ScenarioStep(NamedTuple):
    """One step of a turn: its name, and its checked fields."""

    name: str
    fields: Mapping[str, Any]


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
    """Read a scenario file; raise ConfigError if it is missing, too large or unreadable."""
    try:
        # Reading a pipe would block.
        if not path.is_file():
            problem = "is a folder, not a file" if path.is_dir() else "does not exist"
            raise ConfigError(f"the scenario {path} {problem}", FORMAT_HINT)

        if path.stat().st_size > MAX_SCENARIO_BYTES:
            raise ConfigError(f"{path} exceeds {MAX_SCENARIO_BYTES} bytes", "split the scenario")
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
    """Parse one turn of a scenario; raise an error with its location."""
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


class _FieldRule(NamedTuple):
    """The values that a field accepts, in code and in words."""

    accepts: Callable[[Any], bool]
    expected: str
    is_required: bool = True


def _is_text_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_json(value: object) -> bool:
    """Return whether JSON can represent a value: a TOML date, for instance, it cannot."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _one_of(choices: Iterable[str]) -> _FieldRule:
    return _FieldRule(lambda value: value in [*choices], f"one of {', '.join(choices)}")


_MAX_SLEEP_S = 86_400
_MAX_EXIT_STATUS = 255
_TEXT = _FieldRule(lambda value: isinstance(value, str), "a string")
_COMMAND = _FieldRule(
    lambda value: value != [] and (isinstance(value, str) or _is_text_list(value)),
    "a command, as a string or a list of strings",
)
_TEXT_LIST = _FieldRule(_is_text_list, "a list of strings", is_required=False)
_FLAG = _FieldRule(lambda value: isinstance(value, bool), "true or false", is_required=False)
_SECONDS = _FieldRule(
    lambda value: type(value) in (int, float) and 0 <= value <= _MAX_SLEEP_S,
    f"a number from 0 to {_MAX_SLEEP_S}",
)
_STATUS = _FieldRule(
    lambda value: type(value) is int and 0 <= value <= _MAX_EXIT_STATUS,
    f"a whole number from 0 to {_MAX_EXIT_STATUS}",
)
_RESPONSE_VALUE = _FieldRule(_is_json, "a value that can be JSON", is_required=False)
# The fields of each step. A field with the name of the step says which step it is.
STEP_RULES = {
    "write": {"write": _TEXT, "content": _TEXT},
    "append": {"append": _TEXT, "content": _TEXT},
    "delete": {"delete": _TEXT},
    "run": {"run": _COMMAND, "may_fail": _FLAG},
    "commit": {"commit": _TEXT, "paths": _TEXT_LIST},
    "print": {"print": _TEXT},
    "print_stderr": {"print_stderr": _TEXT},
    "sleep_s": {"sleep_s": _SECONDS},
    "exit": {"exit": _STATUS},
    "result": {
        "result": _one_of(RESULT_STATUSES),
        **dict.fromkeys(RESPONSE_FIELDS, _RESPONSE_VALUE),
    },
    "verdict": {"verdict": _one_of(VERDICTS)},
    "task": {"task": _TEXT, "status": _one_of(TASK_STATUSES)},
}


def _parse_step(data: object, location: _ScenarioLocation) -> ScenarioStep:
    """Parse one step of a turn and validate its fields."""
    if not isinstance(data, dict):
        raise location.make_error('a step is a table such as { print = "done" }')

    names = [name for name in data if name in STEP_RULES]
    if len(names) != 1:
        choices = f"one of {', '.join(STEP_RULES)}"
        raise location.make_error(
            f"{_format_names(data)}: a step has exactly {choices}{_did_you_mean(data)}"
        )

    name = names[0]
    rules = STEP_RULES[name]
    unknown = [key for key in data if key not in rules]
    if unknown:
        raise location.make_error(f"`{name}` does not take {_format_names(unknown)}")

    for key, rule in rules.items():
        if key not in data and rule.is_required:
            raise location.make_error(f"`{name}` needs `{key}`, {rule.expected}")
        if key in data and not rule.accepts(data[key]):
            raise location.make_error(f"`{key}` must be {rule.expected}")

    return ScenarioStep(name, data)


def _did_you_mean(data: Mapping[str, object]) -> str:
    # Imported here, because it is needed only for an error.
    from difflib import get_close_matches

    for name in data:
        for match in get_close_matches(str(name), STEP_RULES, n=1):
            return f"; did you mean `{match}`?"

    return ""


def _format_names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "nothing"
