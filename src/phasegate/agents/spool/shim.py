"""`phasegate` and `agileplus` inside a job.

A request goes into the job's spool, the orchestrator answers.

Copied into the job's own folder and run there by `python -I`, so standard library only and nothing
of our package.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time

ANSWER_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.02
MAX_CONTENT_BYTES = 4_000_000
# EX_TEMPFAIL: nothing is wrong with the request
NO_ANSWER_EXIT = 75
USAGE = """\
Inside a job these commands are answered by the orchestrator:
  next [--phase KEY | --event NAME]
  status [WPnn]
  worktree list [--all]
  spec check FILE
  artifact write [--feature-slug S] --relative-path P (--content C | --file F | -)
  artifact read [--feature-slug S] --relative-path P
  artifact list [--feature-slug S]
  ask "..." [--option A --option B] [--no-wait]    a question to a person; waits for the answer
  mcp                                              these as tools, for programs that take an MCP server
"""


UNANSWERED_TEXT = """\
Nobody has answered yet. Decide yourself, and say in your report what you decided and why.
An answer that comes later is shown to whoever works on this next.
"""


def main(spool: str, arguments: list[str]) -> int:
    """Hand in one request, wait for its answer, show it."""
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(USAGE)
        return 0

    if arguments == ["mcp"]:
        sys.path.insert(0, os.path.dirname(__file__))  # noqa: PTH120
        from mcp_shim import JobServer  # type: ignore[import-not-found] # beside this copy

        JobServer(lambda words: _merge_output(run_command(spool, words))).serve()
        return 0

    status, out, error = run_command(spool, arguments)
    sys.stdout.write(out)
    sys.stderr.write(error)

    return status


def run_command(spool: str, arguments: list[str]) -> tuple[int, str, str]:
    """What a command ends with and says."""
    try:
        if arguments[0] == "ask":
            answer = ask_question(spool, arguments[1:])
        else:
            answer = send_request(spool, inline_content(arguments))
    except (OSError, ValueError) as error:
        return 2, "", f"phasegate: {error}\n"

    if answer is None:
        return (
            NO_ANSWER_EXIT,
            "",
            "phasegate: the orchestrator did not answer. Go on without it; the work is not affected.\n",
        )

    status = answer.get("exit_status")
    found = status if isinstance(status, int) else 70

    return found, str(answer.get("stdout", "")), str(answer.get("stderr", ""))


def _merge_output(result: tuple[int, str, str]) -> tuple[int, str]:
    return result[0], result[1] + result[2]


def send_request(spool: str, arguments: list[str]) -> dict[str, object] | None:
    """The answer to one request."""
    return wait_for_answer(spool, write_request(spool, {"arguments": arguments}))


def ask_question(spool: str, arguments: list[str]) -> dict[str, object] | None:
    """A question and its answer, looked for ever more seldom; without one, what to do then."""
    first = send_request(spool, ["ask", *(word for word in arguments if word != "--no-wait")])
    if first is None or first.get("exit_status") != 0:
        return first

    id_, patience_s = str(first.get("stdout", "")).split()
    until_s = time.monotonic() + (0 if "--no-wait" in arguments else float(patience_s))
    pause_s = 0.2

    while time.monotonic() < until_s:
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 10.0)
        answer = send_request(spool, ["ask", "--known", id_])
        if answer is None or answer.get("exit_status") != NO_ANSWER_EXIT:
            return answer

    return {"exit_status": 0, "stdout": UNANSWERED_TEXT}


def inline_content(arguments: list[str]) -> list[str]:
    """Files and stdin are read here, with the agent's own rights, and travel as content."""
    changed = list(arguments)
    if changed[:2] == ["spec", "check"] and changed[2:]:
        with open(changed[2], "rb") as file:  # noqa: PTH123 - pathlib costs more than the rest of this
            return [*changed, "--content", _decode_content(file.read(MAX_CONTENT_BYTES + 1))]
    if changed[:2] != ["artifact", "write"]:
        return changed

    if "--file" in changed[:-1]:
        at = changed.index("--file")
        with open(changed[at + 1], "rb") as file:  # noqa: PTH123 - pathlib costs more than the rest of this
            changed[at : at + 2] = ["--content", _decode_content(file.read(MAX_CONTENT_BYTES + 1))]
    elif changed[-1] == "-":
        changed[-1:] = ["--content", _decode_content(sys.stdin.buffer.read(MAX_CONTENT_BYTES + 1))]

    return changed


def _decode_content(data: bytes) -> str:
    if len(data) > MAX_CONTENT_BYTES:
        raise ValueError(f"the content is larger than {MAX_CONTENT_BYTES} bytes")
    return data.decode()


def write_request(spool: str, request: object) -> str:
    """Write the request under a name that nobody looks at, then give it the name under which it is
    found whole.
    """
    name = secrets.token_hex(16)
    waiting = f"{spool}/requests/{name}.json"
    with open(f"{waiting}.new", "x", encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs more than the rest of this
        json.dump(request, file)

    os.rename(f"{waiting}.new", waiting)  # noqa: PTH104
    return name


def wait_for_answer(spool: str, name: str) -> dict[str, object] | None:
    """The answer, or None when none came in time."""
    until_s = time.monotonic() + ANSWER_TIMEOUT_S

    while time.monotonic() < until_s:
        try:
            with open(f"{spool}/answers/{name}.json", encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs more than the rest of this
                answer = json.load(file)
        except FileNotFoundError:
            time.sleep(POLL_INTERVAL_S)
        else:
            if isinstance(answer, dict):
                return answer
            return {}

    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
