"""The scripted agent as a program.

`python -m phasegate.agents.scripted.program SCENARIO`, the task envelope on stdin.

It plays the first turn that fits its task: a demo, a test double and something to learn from. It
needs no model. It is an agent like any other, so it is trusted with nothing; a misbehaving one is a
scenario with bad steps.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from phasegate.agents.scripted.scenario import (
    TASK_STATUS_PREFIX,
    CommitStep,
    DeleteStep,
    ExitStep,
    PrintStep,
    ResultStep,
    RunStep,
    ScenarioStep,
    ScenarioTurn,
    SleepStep,
    WriteStep,
    load_scenario,
    make_task_status_step,
)
from phasegate.errors import ConfigError

# EX_CONFIG of sysexits.h: the harness reads it as "not runnable"
BAD_SCENARIO_EXIT = 78
# EX_SOFTWARE: a step could not be carried out
STEP_FAILED_EXIT = 70
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


class StepFailed(Exception):
    """A step could not be carried out, so the rest of the turn would not be what the scenario says."""

    def __init__(self, message: str, exit_status: int = STEP_FAILED_EXIT) -> None:
        super().__init__(message)
        self.exit_status = exit_status


def main(arguments: Sequence[str]) -> int:
    """Play one turn and give the exit status."""
    try:
        if len(arguments) != 1:
            raise ConfigError(
                "usage: python -m phasegate.agents.scripted.program SCENARIO < envelope.json"
            )

        values = _build_placeholder_values(_parse_envelope(sys.stdin.buffer.read()), os.environ)
        turn = load_scenario(Path(arguments[0])).find_turn(_build_situation(values))
    except ConfigError as error:
        print(f"scripted agent: {error.message}\n{error.hint}", file=sys.stderr)
        return BAD_SCENARIO_EXIT

    return ScenarioPlayer(turn, values).play()


def _parse_envelope(data: bytes) -> dict[str, object]:
    try:
        envelope = json.loads(data)
    except (ValueError, RecursionError):
        envelope = None

    if not isinstance(envelope, dict):
        raise ConfigError(
            "stdin does not hold a task envelope", "send the envelope as one JSON object"
        )

    return envelope


def _build_placeholder_values(
    envelope: Mapping[str, object], environment: Mapping[str, str]
) -> dict[str, str]:
    """What a scenario's texts can name.

    The envelope's fields, those of its config, and the situation.
    """
    config = envelope.get("config")
    fields = {**envelope, **(config if isinstance(config, dict) else {})}
    named = ("phase", "workflow_phase", "round")
    values = {name: environment.get(f"PHASEGATE_{name.upper()}", "") for name in named}
    values |= {name: _as_text(value) for name, value in fields.items() if name != "config"}

    return {
        "wp_id": "",
        "agent_index": "0",
        "agent_count": "1",
        "assigned_deliverables": "",
        **values,
    }


def _as_text(value: object) -> str:
    if isinstance(value, list):
        return "\n".join(str(one) for one in value)
    if value is None:
        return ""
    return str(value)


def _build_situation(values: Mapping[str, str]) -> dict[str, str]:
    named = {name: values[name] for name in ("phase", "workflow_phase", "agent_index")}
    return {**named, "package": values["wp_id"], "round": values["round"] or "1"}


class ScenarioPlayer:
    """Plays the steps of one turn in the current folder."""

    def __init__(self, turn: ScenarioTurn, values: Mapping[str, str]) -> None:
        self._turn = turn
        self._values = values
        self._started_s = time.monotonic()
        self._created: list[str] = []
        needs_git = any(isinstance(step, ResultStep) for step in turn.steps)
        if needs_git:
            self._base_commit = _read_git_output("rev-parse", "--verify", "HEAD")
        else:
            self._base_commit = ""

        # Read first: a step may put a pipe in its place
        self._tasks = _read_tasks(values.get("prompt_path", ""))

    def play(self) -> int:
        """Carry out the steps in order, up to an `exit`, a failure or the end."""
        for number, step in enumerate(self._turn.steps, 1):
            if isinstance(step, ExitStep):
                return step.status

            try:
                self._play_step(step)
            except (OSError, ValueError, StepFailed) as error:
                name = type(step).__name__.removesuffix("Step").lower()
                print(f"scripted agent: step {number}, {name}: {error}", file=sys.stderr)
                if isinstance(error, StepFailed):
                    return error.exit_status
                return STEP_FAILED_EXIT

        return 0

    def _play_step(self, step: ScenarioStep) -> None:
        match step:
            case WriteStep():
                self.write_file(step)
            case DeleteStep():
                self.delete_path(step)
            case RunStep():
                self.run_command(step)
            case CommitStep():
                self.commit_files(step)
            case PrintStep():
                self.print_text(step)
            case SleepStep():
                self.sleep(step)
            case ResultStep():
                self.print_result(step)

    def fill_placeholders(self, text: str) -> str:
        """Replace `{job_id}` and the other known names, once; any other brace is left as it is."""
        return _PLACEHOLDER.sub(lambda found: self._values.get(found[1], found[0]), text)

    def write_file(self, step: WriteStep) -> None:
        name = self.fill_placeholders(step.path)
        path = Path(name)
        if not os.path.lexists(path):
            self._created.append(name)

        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a" if step.append else "w", encoding="utf-8", newline="") as file:
            file.write(self.fill_placeholders(step.content))

    def delete_path(self, step: DeleteStep) -> None:
        path = Path(self.fill_placeholders(step.path))
        if path.is_dir() and not path.is_symlink():
            from shutil import rmtree

            rmtree(path)
        else:
            path.unlink()

    def run_command(self, step: RunStep) -> None:
        sys.stdout.flush()
        argv = [self.fill_placeholders(argument) for argument in step.argv]
        status = subprocess.run(argv, stdin=subprocess.DEVNULL, check=False).returncode

        if status and not step.may_fail:
            raise StepFailed(
                f"{argv[-1]!r} ended with {status}",
                status if 0 < status < 256 else STEP_FAILED_EXIT,
            )

    def commit_files(self, step: CommitStep) -> None:
        """Commit the named paths, or all but the prompt document, which is not part of the work."""
        document = os.path.relpath(self._values.get("prompt_path") or "WP.md")
        # git refuses to exclude what its own rules ignore already, as they do in a package's
        # checkout.
        set_aside = document.startswith("..") or bool(
            _read_git_output("check-ignore", "--", document)
        )
        everything = (".", *([] if set_aside else [f":(exclude,literal){document}"]))
        _run_git(
            "add",
            "--all",
            "--",
            *([self.fill_placeholders(path) for path in step.paths] or everything),
        )

        _run_git(
            "commit", "--quiet", "--no-verify", f"--message={self.fill_placeholders(step.message)}"
        )

    def print_text(self, step: PrintStep) -> None:
        text = self.fill_placeholders(step.text)
        out = sys.stderr if step.to_stderr else sys.stdout
        out.write(text if text.endswith("\n") else f"{text}\n")
        out.flush()

    def sleep(self, step: SleepStep) -> None:
        sys.stdout.flush()
        time.sleep(step.seconds)

    def print_result(self, step: ResultStep) -> None:
        """The JSON response with this job's ids, and with what was really done unless the scenario
        says otherwise.
        """
        done = step.status == "completed"

        if done and not any(
            isinstance(one, PrintStep) and one.text.startswith(TASK_STATUS_PREFIX)
            for one in self._turn.steps
        ):
            for task in self._tasks:
                self.print_text(make_task_status_step(task, "COMPLETED"))

        response = {
            "job_id": self._values.get("job_id"),
            "wp_id": self._values.get("wp_id") or None,
            "success": done,
            "status": step.status,
            **({"summary": "Done as scripted"} if done else {"error": "Blocked as scripted"}),
            "commits": self._list_commits(),
            "artifacts": {"files_created": self._created},
            "duration_seconds": round(time.monotonic() - self._started_s),
        }

        text = json.dumps(
            {**response, **{name: self._fill_value(value) for name, value in step.fields.items()}},
            indent=2,
        )
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def _fill_value(self, value: object) -> object:
        """A JSON value with each text in it filled."""
        if isinstance(value, str):
            return self.fill_placeholders(value)
        if isinstance(value, list):
            return [self._fill_value(one) for one in value]
        if isinstance(value, dict):
            return {name: self._fill_value(one) for name, one in value.items()}

        return value

    def _list_commits(self) -> list[dict[str, str]]:
        """Those made since the turn began, oldest first."""
        if self._base_commit:
            span = f"{self._base_commit}..HEAD"
        else:
            span = "HEAD"

        lines = _read_git_output("log", "--reverse", "--format=%H %s", span, "--").splitlines()
        return [
            {"sha": sha, "message": message}
            for sha, _, message in (line.partition(" ") for line in lines)
        ]


def _read_tasks(document: str) -> list[str]:
    """The tasks that the front matter of a package's document names, written as a list on one line."""
    with suppress(OSError, UnicodeDecodeError):
        front = Path(document).read_text("utf-8").partition("\n---\n")[0]
        found = re.search(r"^tasks: *\[(.*)\]", front, re.MULTILINE)
        if found:
            return re.findall(r"[0-9]+\.[0-9]+", found[1])
        return []

    return []


def _run_git(*arguments: str) -> None:
    done = subprocess.run(
        _build_git_command(arguments), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode:
        raise StepFailed((done.stderr or done.stdout).decode("utf-8", "replace").strip())


def _read_git_output(*arguments: str) -> str:
    """What git prints; nothing where there is no repository or no commit."""
    with suppress(OSError):
        done = subprocess.run(
            _build_git_command(arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )

        if done.returncode:
            return ""
        return done.stdout.decode("utf-8", "replace").strip()

    return ""


def _build_git_command(arguments: Sequence[str]) -> list[str]:
    # An author of its own where the cage gave none; a real one, from the environment, goes before
    # these.
    who = (
        "-c",
        "user.name=Scripted Agent",
        "-c",
        "user.email=scripted@agent.invalid",
        "-c",
        "commit.gpgSign=false",
    )
    return ["git", *who, *arguments]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
