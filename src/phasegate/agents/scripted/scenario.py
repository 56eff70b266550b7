"""Scenario files: what a scripted agent does, turn by turn. Standard library only: the agent itself loads this.

[[turns]]
phase = "implement"         # each of phase, workflow_phase, package, round and agent_index may be left out: any
steps = [{ write = "hello.py", content = "print('hello')" }, { commit = "{wp_id}: Add hello" }, { result = "success" }]
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from phasegate.errors import ConfigError

LARGEST_SCENARIO_BYTES = 16_000_000
HINT = "docs/how-to/script-an-agent.md has the format"
MATCHED_BY = ("phase", "workflow_phase", "package", "round", "agent_index")
VERDICTS = ("PASS", "NEEDS_REVISION", "NEEDS_CHANGES", "REJECTED", "MAJOR_ISSUES")
TASK_STATUSES = ("COMPLETED", "FAILED")
TASK_LINE = "<task_status id="
RESULTS = {"success": "completed", "blocked": "blocked"}
RESPONSE_FIELDS = (
    *("job_id", "wp_id", "success", "status", "summary", "commits", "artifacts", "pr_url", "duration_seconds"),
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


ScenarioStep = WriteStep | DeleteStep | RunStep | CommitStep | PrintStep | SleepStep | ExitStep | ResultStep


class ScenarioTurn(NamedTuple):
    """What the agent does when it is called in a situation that matches; a key that is not there matches anything."""

    match: Mapping[str, tuple[str, ...]]
    steps: tuple[ScenarioStep, ...]

    def fits(self, situation: Mapping[str, str]) -> bool:
        return all(_fits(key, wanted, situation) for key, wanted in self.match.items())


def _fits(key: str, wanted: tuple[str, ...], situation: Mapping[str, str]) -> bool:
    # "phase" is the word for both: `review`, and the workflow's `08-code-review`.
    keys = ("phase", "workflow_phase") if key == "phase" else (key,)
    return any(situation.get(key) in wanted for key in keys)


class PlayedScenario(NamedTuple):
    name: str
    turns: tuple[ScenarioTurn, ...]

    def turn_for(self, situation: Mapping[str, str]) -> ScenarioTurn:
        """The first turn that fits; a ConfigError that says what was looked for when none does."""
        found = next((turn for turn in self.turns if turn.fits(situation)), None)
        if found is not None:
            return found
        asked = ", ".join(f"{key} {situation.get(key) or '(none)'}" for key in MATCHED_BY)
        have = "; ".join(f"turn {number}: {_described(turn)}" for number, turn in enumerate(self.turns, 1))
        raise ConfigError(f"{self.name}: no turn fits {asked}. There is: {have or 'no turn at all'}", HINT)


def _described(turn: ScenarioTurn) -> str:
    return ", ".join(f"{key} {' or '.join(wanted)}" for key, wanted in turn.match.items()) or "any"


def load_scenario(path: Path) -> PlayedScenario:
    """Read and check a scenario; what is wrong is a ConfigError with the turn, the step and, where known, the line."""
    text = _text_of(path)
    data = _parsed(path, text)
    turns = data.get("turns") if isinstance(data, dict) else data
    if isinstance(data, dict) and data.keys() != {"turns"}:
        raise ConfigError(f"{path.name}: the file holds `turns` and nothing else, not {_listed(data)}", HINT)
    if not isinstance(turns, list):
        raise ConfigError(f"{path.name}: `turns` is not a list", HINT)
    lines = _lines_of_turns(text)
    return PlayedScenario(
        path.name, tuple(_turn(turn, _Place(path.name, n, lines.get(n))) for n, turn in enumerate(turns, 1))
    )


def _text_of(path: Path) -> str:
    try:
        if not path.is_file():  # a pipe would be waited for
            what = "is a folder, and a file is meant" if path.is_dir() else "is not there"
            raise ConfigError(f"the scenario {path} {what}", HINT)
        if path.stat().st_size > LARGEST_SCENARIO_BYTES:
            raise ConfigError(f"{path} is larger than {LARGEST_SCENARIO_BYTES} bytes", HINT)
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", HINT) from None


def _parsed(path: Path, text: str) -> object:
    if path.suffix == ".json":
        loads: Callable[[str], object] = json.loads
    else:
        from tomllib import loads  # not needed for JSON
    try:
        return loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path.name}: {error}", HINT) from None


def _lines_of_turns(text: str) -> dict[int, int]:
    """Line numbers of `[[turns]]`, by turn: the TOML reader does not keep them."""
    heads = [number for number, line in enumerate(text.split("\n"), 1) if re.match(r"\s*\[\[\s*turns\s*\]\]", line)]
    return dict(enumerate(heads, 1))


class _Place(NamedTuple):
    file: str
    turn: int
    line: int | None
    step: int | None = None

    def problem(self, message: str) -> ConfigError:
        line = f":{self.line}" if self.line else ""
        step = f", step {self.step}" if self.step else ""
        return ConfigError(f"{self.file}{line}: turn {self.turn}{step}: {message}", HINT)


def _turn(data: object, place: _Place) -> ScenarioTurn:
    if not isinstance(data, dict):
        raise place.problem("a turn is a table with `steps`")
    unknown = [key for key in data if key not in (*MATCHED_BY, "steps")]
    if unknown:
        raise place.problem(f"unknown {_listed(unknown)}; a turn has {', '.join(MATCHED_BY)} and steps")
    steps = data.get("steps")
    if not isinstance(steps, list):
        raise place.problem("`steps` is missing or not a list")
    match = {key: _wanted(key, data[key], place) for key in MATCHED_BY if key in data}
    return ScenarioTurn(match, tuple(_step(step, place._replace(step=number)) for number, step in enumerate(steps, 1)))


def _wanted(key: str, value: object, place: _Place) -> tuple[str, ...]:
    """One value or a list of them; numbers where numbers are meant."""
    values = value if isinstance(value, list) else [value]
    kind = int if key in ("round", "agent_index") else str
    if not values or any(type(one) is not kind for one in values):
        raise place.problem(f"`{key}` is a {'number' if kind is int else 'text'}, or a list of them")
    return tuple(str(one) for one in values)


def _step(data: object, place: _Place) -> ScenarioStep:
    if not isinstance(data, dict):
        raise place.problem('a step is a table such as { print = "done" }')
    names = [name for name in data if name in _STEPS]
    if len(names) != 1:
        what = f"one of {', '.join(_STEPS)}"
        raise place.problem(f"{_listed(data)}: a step has exactly {what}{_did_you_mean(data)}")
    fields = _Fields(data, names[0], place)
    step = _STEPS[names[0]](fields)
    fields.refuse_others()
    return step


def _did_you_mean(data: Mapping[str, object]) -> str:
    from difflib import get_close_matches  # only on the way to an error

    near = [close for name in data for close in get_close_matches(str(name), _STEPS, n=1)]
    return f"; did you mean `{near[0]}`?" if near else ""


def _listed(names: Mapping[str, object] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "nothing"


class _Fields:
    """The fields of one step, taken one by one; what is left over in the end is an error."""

    def __init__(self, data: Mapping[str, object], name: str, place: _Place) -> None:
        self._data, self.name, self.place = dict(data), name, place

    def text(self, key: str) -> str:
        value = self._data.pop(key, None)
        if not isinstance(value, str):
            raise self.place.problem(f"`{self.name}` needs `{key}`, a text")
        return value

    def one_of(self, key: str, allowed: tuple[str, ...]) -> str:
        value = self.text(key)
        if value not in allowed:
            raise self.place.problem(f"`{key}` is one of {', '.join(allowed)}, not {value!r}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._data.pop(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.place.problem(f"`{key}` is a list of texts")
        return tuple(value)

    def holds_list(self, key: str) -> bool:
        return isinstance(self._data.get(key), list)

    def flag(self, key: str) -> bool:
        value = self._data.pop(key, False)
        if not isinstance(value, bool):
            raise self.place.problem(f"`{key}` is true or false")
        return value

    def number(self, key: str, most: float, whole: bool = False) -> float:
        value = self._data.pop(key, None)
        fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most
        if not fits or (whole and not isinstance(value, int)):
            raise self.place.problem(f"`{key}` is a {'whole ' if whole else ''}number from 0 to {most:g}")
        assert isinstance(value, int | float)
        return value

    def rest(self, known: tuple[str, ...]) -> Mapping[str, object]:
        """Those of the known fields that are there; all of them can be JSON."""
        found = {key: self._data.pop(key) for key in known if key in self._data}
        try:
            json.dumps(found, allow_nan=False)
        except (TypeError, ValueError) as error:  # a TOML date, for instance
            raise self.place.problem(f"the response cannot be JSON: {error}") from None
        return found

    def refuse_others(self) -> None:
        if self._data:
            raise self.place.problem(f"`{self.name}` does not take {_listed(self._data)}")


def _run(fields: _Fields) -> RunStep:
    argv = fields.texts("run") if fields.holds_list("run") else ("sh", "-c", fields.text("run"))
    if not argv:
        raise fields.place.problem("`run` needs a command")
    return RunStep(argv, fields.flag("may_fail"))


def _task_status(fields: _Fields) -> PrintStep:
    return task_line(fields.text("task"), fields.one_of("status", TASK_STATUSES))


def task_line(task: str, status: str) -> PrintStep:
    return PrintStep(f'{TASK_LINE}"{task}">{status}</task_status>', to_stderr=False)


def _result(fields: _Fields) -> ResultStep:
    return ResultStep(RESULTS[fields.one_of("result", tuple(RESULTS))], fields.rest(RESPONSE_FIELDS))


_LONGEST_SLEEP_S = 86_400.0
_STEPS: Mapping[str, Callable[[_Fields], ScenarioStep]] = {
    "write": lambda fields: WriteStep(fields.text("write"), fields.text("content"), append=False),
    "append": lambda fields: WriteStep(fields.text("append"), fields.text("content"), append=True),
    "delete": lambda fields: DeleteStep(fields.text("delete")),
    "run": _run,
    "commit": lambda fields: CommitStep(fields.text("commit"), fields.texts("paths")),
    "print": lambda fields: PrintStep(fields.text("print"), to_stderr=False),
    "print_stderr": lambda fields: PrintStep(fields.text("print_stderr"), to_stderr=True),
    "sleep_s": lambda fields: SleepStep(fields.number("sleep_s", _LONGEST_SLEEP_S)),
    "exit": lambda fields: ExitStep(int(fields.number("exit", 255, whole=True))),
    "result": _result,
    "verdict": lambda fields: PrintStep(f"<review>{fields.one_of('verdict', VERDICTS)}</review>", to_stderr=False),
    "task": _task_status,
}
