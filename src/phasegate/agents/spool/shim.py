"""`phasegate` and `agileplus` inside a job: requests to the orchestrator through the job's spool.

The file is copied into the job's folder and run there by `python -I`, so it uses the standard
library only and imports nothing of this package. `open` is used instead of pathlib, whose import
takes longer than the rest of the program.
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
# EX_TEMPFAIL: the request itself is valid.
NO_ANSWER_EXIT = 75
USAGE = """\
Commands available inside a job (the orchestrator answers them):
  next [--phase KEY | --event NAME]
  status [WPnn]
  worktree list [--all]
  check                                            the commands that the gate will run
  spec check FILE|FOLDER
  artifact write [--feature-slug S] --relative-path P (--content C | --file F | -)
  artifact read [--feature-slug S] --relative-path P
  artifact list [--feature-slug S]
  ask "..." [--option A --option B] [--no-wait]    ask the user; waits for the answer
  mcp                                              an MCP server with these commands as tools
"""


UNANSWERED_TEXT = """\
There is no answer yet. Decide yourself, and state in your report what you decided and why.
A later answer is shown to the next agent that works on this.
"""


def main(spool: str, arguments: list[str]) -> int:
    """Send one request, wait for the answer, and print it."""
    if not arguments or "-h" in arguments or "--help" in arguments:
        lines = USAGE.splitlines(keepends=True)
        own = [line for line in lines[1:] if arguments and line.split()[0] == arguments[0]]
        sys.stdout.writelines(own or lines)
        return 0

    if arguments == ["mcp"]:
        sys.path.insert(0, os.path.dirname(__file__))  # noqa: PTH120
        # It is copied to the same folder.
        from mcp_shim import JobServer  # type: ignore[import-not-found]

        JobServer(lambda words: _merge_output(forward_command(spool, words))).serve()
        return 0

    status, stdout, stderr = forward_command(spool, arguments)
    sys.stdout.write(stdout)
    sys.stderr.write(stderr)

    return status


def forward_command(spool: str, arguments: list[str]) -> tuple[int, str, str]:
    """Run a command; return its exit status, stdout and stderr."""
    try:
        if arguments[0] == "ask":
            answer = ask_question(spool, arguments[1:])
        else:
            answer = send_request(spool, inline_content(arguments))
    except (OSError, ValueError) as error:
        return 2, "", f"phasegate: {error}\n"

    if answer is None:
        message = "the orchestrator did not answer. Continue without it; your work is not affected."
        return NO_ANSWER_EXIT, "", f"phasegate: {message}\n"

    status = answer.get("exit_status")
    if not isinstance(status, int):
        status = 70

    return status, str(answer.get("stdout", "")), str(answer.get("stderr", ""))


def _merge_output(result: tuple[int, str, str]) -> tuple[int, str]:
    return result[0], result[1] + result[2]


def send_request(spool: str, arguments: list[str]) -> dict[str, object] | None:
    """Send one request and return its answer, or return None if there was none in time."""
    return wait_for_answer(spool, write_request(spool, {"arguments": arguments}))


def ask_question(spool: str, arguments: list[str]) -> dict[str, object] | None:
    """Ask a question and poll for its answer with exponential back-off.

    Without an answer in time, return an instruction to continue without it.
    """
    first = send_request(spool, ["ask", *(word for word in arguments if word != "--no-wait")])
    if first is None or first.get("exit_status") != 0:
        return first

    question_id, timeout_s = str(first.get("stdout", "")).split()
    deadline_s = time.monotonic()
    if "--no-wait" not in arguments:
        deadline_s += float(timeout_s)

    pause_s = 0.2
    while time.monotonic() < deadline_s:
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 10.0)
        answer = send_request(spool, ["ask", "--known", question_id])
        if answer is None or answer.get("exit_status") != NO_ANSWER_EXIT:
            return answer

    return {"exit_status": 0, "stdout": UNANSWERED_TEXT}


def inline_content(arguments: list[str]) -> list[str]:
    """Replace file arguments and stdin with their content, read with the agent's permissions."""
    if arguments[:2] == ["spec", "check"] and arguments[2:] and os.path.isdir(arguments[2]):  # noqa: PTH112
        return [*arguments, "--documents", json.dumps(_read_documents(arguments[2]))]
    if arguments[:2] == ["spec", "check"] and arguments[2:]:
        return [*arguments, "--content", _read_file(arguments[2])]

    words = list(arguments)
    if words[:2] != ["artifact", "write"]:
        return words

    if "--file" in words[:-1]:
        index = words.index("--file")
        words[index : index + 2] = ["--content", _read_file(words[index + 1])]
    elif words[-1] == "-":
        words[-1:] = ["--content", _decode_content(sys.stdin.buffer.read(MAX_CONTENT_BYTES + 1))]

    return words


def _read_file(path: str) -> str:
    with open(path, "rb") as file:  # noqa: PTH123
        return _decode_content(file.read(MAX_CONTENT_BYTES + 1))


def _read_documents(folder: str) -> dict[str, str]:
    """Read the documents below a folder; links are not followed."""
    found: dict[str, str] = {}
    for root, _, names in os.walk(folder):
        for name in sorted(names):
            path = f"{root}/{name}"
            if name.endswith(".md") and not os.path.islink(path):  # noqa: PTH114
                found[os.path.relpath(path, folder)] = _read_file(path)

    if sum(map(len, found.values())) > MAX_CONTENT_BYTES:
        raise ValueError(f"the documents exceed {MAX_CONTENT_BYTES} bytes in total")
    return found


def _decode_content(data: bytes) -> str:
    if len(data) > MAX_CONTENT_BYTES:
        raise ValueError(f"the content is larger than {MAX_CONTENT_BYTES} bytes")
    return data.decode()


def write_request(spool: str, request: object) -> str:
    """Write the request to a temporary file and rename it; return its name.

    The server ignores the temporary name, so it never reads a partial request.
    """
    name = secrets.token_hex(16)
    path = f"{spool}/requests/{name}.json"
    with open(f"{path}.new", "x", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(request, file)

    os.rename(f"{path}.new", path)  # noqa: PTH104
    return name


def wait_for_answer(spool: str, name: str) -> dict[str, object] | None:
    """Return the answer, or None after the timeout, {} for an answer that is not an object."""
    path = f"{spool}/answers/{name}.json"
    deadline_s = time.monotonic() + ANSWER_TIMEOUT_S

    while time.monotonic() < deadline_s:
        try:
            with open(path, encoding="utf-8") as file:  # noqa: PTH123
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
