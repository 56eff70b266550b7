"""The scripted agent as a program.

Usage: `python -m phasegate.agents.scripted.program SCENARIO`, with the task envelope on stdin.

It plays the first turn that matches its task. It serves as a demo, a test double and an example,
and needs no model. Like every agent it is not trusted; a misbehaving agent is a scenario with bad
steps.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from phasegate.agents.scripted.scenario import (
    RESULT_STATUSES,
    ScenarioStep,
    ScenarioTurn,
    load_scenario,
)
from phasegate.errors import ConfigError

# EX_CONFIG of sysexits.h: the harness reports it as "not runnable".
BAD_SCENARIO_EXIT = 78
# EX_SOFTWARE: a step failed.
STEP_FAILED_EXIT = 70
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_TASK_STATUS_PREFIX = "<task_status id="
_FILE_MODES = {"write": "w", "append": "a"}
_EMAIL = "scripted@agent.invalid"


class StepFailed(Exception):
    """A step failed, so the rest of the turn is not played."""

    def __init__(self, message: str, exit_status: int = STEP_FAILED_EXIT) -> None:
        super().__init__(message)
        self.exit_status = exit_status


def main(arguments: Sequence[str]) -> int:
    """Play one turn and return the exit status."""
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
    """Parse the task envelope from stdin; raise ConfigError if it is not a JSON object."""
    try:
        envelope = json.loads(data)
    except (ValueError, RecursionError):
        envelope = None

    if not isinstance(envelope, dict):
        raise ConfigError(
            "stdin does not contain a task envelope", "send the envelope as one JSON object"
        )

    return envelope


def _build_placeholder_values(
    envelope: Mapping[str, object], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the placeholders of a scenario's texts: envelope fields, config fields, situation."""
    fields = dict(envelope)
    config = fields.pop("config", None)
    if isinstance(config, dict):
        fields |= config

    names = ("phase", "workflow_phase", "round")
    values = {name: environment.get(f"PHASEGATE_{name.upper()}", "") for name in names}
    values |= {name: _as_text(value) for name, value in fields.items()}

    return {
        "wp_id": "",
        "agent_index": "0",
        "agent_count": "1",
        "assigned_deliverables": "",
        **values,
    }


def _as_text(value: object) -> str:
    if isinstance(value, list):
        return "\n".join(str(item) for item in value)
    if value is None:
        return ""
    return str(value)


def _build_situation(values: Mapping[str, str]) -> dict[str, str]:
    return {
        "phase": values["phase"],
        "workflow_phase": values["workflow_phase"],
        "agent_index": values["agent_index"],
        "package": values["wp_id"],
        "round": values["round"] or "1",
    }


class ScenarioPlayer:
    """A player of one turn's steps in the current folder."""

    def __init__(self, turn: ScenarioTurn, values: Mapping[str, str]) -> None:
        self._turn = turn
        self._values = values
        self._started_s = time.monotonic()
        self._created: list[str] = []
        self._base_commit = ""
        if any(step.name == "result" for step in turn.steps):
            self._base_commit = _read_git_output("rev-parse", "--verify", "HEAD")

        # Read before the steps run: a step may replace the file with a pipe.
        self._tasks = _read_tasks(values.get("prompt_path", ""))

    def play(self) -> int:
        """Play the steps in order, until an `exit`, a failure or the end."""
        for number, step in enumerate(self._turn.steps, 1):
            if step.name == "exit":
                return int(step.fields["exit"])

            try:
                self._play_step(step)
            except (OSError, ValueError, StepFailed) as error:
                print(f"scripted agent: step {number}, {step.name}: {error}", file=sys.stderr)
                if isinstance(error, StepFailed):
                    return error.exit_status
                return STEP_FAILED_EXIT

        return 0

    def _play_step(self, step: ScenarioStep) -> None:
        """Run one step of the scenario."""
        fields = {name: self._fill_placeholders(value) for name, value in step.fields.items()}
        match step.name:
            case "write" | "append":
                self._write_file(fields[step.name], fields["content"], _FILE_MODES[step.name])
            case "delete":
                _delete_path(Path(fields["delete"]))
            case "run":
                _run_command(fields["run"], may_fail=fields.get("may_fail", False))
            case "commit":
                self._commit_files(fields["commit"], fields.get("paths", []))
            case "print":
                _print_text(fields["print"])
            case "print_stderr":
                _print_text(fields["print_stderr"], sys.stderr)
            case "verdict":
                _print_text(f"<review>{fields['verdict']}</review>")
            case "task":
                _print_task_status(fields["task"], fields["status"])
            case "sleep_s":
                time.sleep(fields["sleep_s"])
            case _:
                self._print_result(RESULT_STATUSES[fields.pop("result")], fields)

    def _fill_placeholders(self, value: Any) -> Any:
        """Replace `{job_id}` and the other known names in all texts of a value.

        Not recursively: other braces are kept.
        """
        if isinstance(value, str):
            return _PLACEHOLDER.sub(lambda match: self._values.get(match[1], match[0]), value)
        if isinstance(value, list):
            return [self._fill_placeholders(item) for item in value]
        if isinstance(value, dict):
            return {name: self._fill_placeholders(item) for name, item in value.items()}

        return value

    def _write_file(self, name: str, content: str, mode: str) -> None:
        path = Path(name)
        if not os.path.lexists(path):
            self._created.append(name)

        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode, encoding="utf-8", newline="") as file:
            file.write(content)

    def _commit_files(self, message: str, paths: list[str]) -> None:
        """Commit the listed paths, or everything except the prompt document."""
        if not paths:
            paths = ["."]
            document = os.path.relpath(self._values.get("prompt_path") or "WP.md")
            # git refuses to exclude a path that is already ignored, as in a package's checkout.
            if not document.startswith("..") and not _read_git_output(
                "check-ignore", "--", document
            ):
                paths.append(f":(exclude,literal){document}")

        _run_git("add", "--all", "--", *paths)
        _run_git("commit", "--quiet", "--no-verify", f"--message={message}")

    def _print_result(self, status: str, fields: Mapping[str, object]) -> None:
        """Print the JSON response with the job's ids and actual results.

        The fields of the scenario override them.
        """
        completed = status == "completed"
        if completed and not self._prints_task_status():
            for task in self._tasks:
                _print_task_status(task, "COMPLETED")

        response: dict[str, object] = {
            "job_id": self._values.get("job_id"),
            "wp_id": self._values.get("wp_id") or None,
            "success": completed,
            "status": status,
        }
        if completed:
            response["summary"] = "Done as scripted"
        else:
            response["error"] = "Blocked as scripted"

        response |= {
            "commits": self._list_commits(),
            "artifacts": {"files_created": self._created},
            "duration_seconds": round(time.monotonic() - self._started_s),
        }
        response |= fields

        sys.stdout.write(f"{json.dumps(response, indent=2)}\n")
        sys.stdout.flush()

    def _prints_task_status(self) -> bool:
        return any(
            step.name == "task" or step.fields.get("print", "").startswith(_TASK_STATUS_PREFIX)
            for step in self._turn.steps
        )

    def _list_commits(self) -> list[dict[str, str]]:
        """Return the commits since the start of the turn, oldest first."""
        revisions = f"{self._base_commit}..HEAD" if self._base_commit else "HEAD"
        log = _read_git_output("log", "--reverse", "--format=%H %s", revisions, "--")

        commits = []
        for line in log.splitlines():
            sha, _, message = line.partition(" ")
            commits.append({"sha": sha, "message": message})

        return commits


def _print_text(text: str, out: TextIO | None = None) -> None:
    print(text.removesuffix("\n"), file=out, flush=True)


def _print_task_status(task: str, status: str) -> None:
    _print_text(f'{_TASK_STATUS_PREFIX}"{task}">{status}</task_status>')


def _delete_path(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        from shutil import rmtree

        rmtree(path)
    else:
        path.unlink()


def _run_command(command: str | list[str], *, may_fail: bool) -> None:
    argv = ["sh", "-c", command] if isinstance(command, str) else command
    status = subprocess.run(argv, stdin=subprocess.DEVNULL, check=False).returncode

    if status and not may_fail:
        raise StepFailed(
            f"{argv[-1]!r} ended with {status}",
            status if 0 < status < 256 else STEP_FAILED_EXIT,
        )


def _read_tasks(document: str) -> list[str]:
    """Return the tasks in a package's front matter, where they are a list on one line."""
    try:
        front_matter = Path(document).read_text("utf-8").partition("\n---\n")[0]
    except (OSError, UnicodeDecodeError):
        return []

    tasks = re.search(r"^tasks: *\[(.*)\]", front_matter, re.MULTILINE)
    if tasks is None:
        return []
    return re.findall(r"[0-9]+\.[0-9]+", tasks[1])


def _run_git(*arguments: str) -> None:
    result = _start_git(arguments)
    if result.returncode:
        raise StepFailed((result.stderr or result.stdout).decode("utf-8", "replace").strip())


def _read_git_output(*arguments: str) -> str:
    """Return the output of git; empty if there is no git, no repository or no commit."""
    try:
        result = _start_git(arguments)
    except OSError:
        return ""

    if result.returncode:
        return ""
    return result.stdout.decode("utf-8", "replace").strip()


def _start_git(arguments: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    settings = ["-c", "commit.gpgSign=false"]
    # The author stays the user of the checkout: another one would count as foreign
    settings += ["-c", "committer.name=Scripted Agent", "-c", f"committer.email={_EMAIL}"]
    if arguments[0] == "commit" and not _read_git_output("config", "user.email"):
        settings += ["-c", "user.name=Scripted Agent", "-c", f"user.email={_EMAIL}"]

    command = ["git", *settings, *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
