"""The server of a job's spool: reads, answers and limits the requests of an agent.

The agent can write to the folder, so nothing in it is trusted. Its two folders are opened before
the agent starts: if it replaces them later, the replacement is ignored. No link is followed, and
only small regular files are read.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.agents.spool import mcp_shim, shim
from phasegate.agents.spool.requests import InvalidSpoolRequest, SpoolRequest, parse_spool_request
from phasegate.background import repeat_in_background
from phasegate.errors import PhasegateError
from phasegate.files import create_new_file, open_folder, read_regular_file
from phasegate.sandbox.readable_paths import find_interpreter
from phasegate.typed import read_json

COMMANDS = ("phasegate", "agileplus")
# JSON escapes some characters, which makes them longer.
MAX_REQUEST_BYTES = 2 * shim.MAX_CONTENT_BYTES
MAX_ANSWER_BYTES = 1_000_000
MAX_REQUESTS_PER_POLL = 16
MAX_REQUESTS_PER_JOB = 1_000
MAX_SPOOL_ENTRIES = 4_096
_REQUEST_NAME = re.compile(r"[0-9a-f]{32}\.json")
_log = logging.getLogger(__name__)


class SpoolAnswer(NamedTuple):
    """The exit status and output of a command, as the agent sees it."""

    exit_status: int
    stdout: str = ""
    stderr: str = ""


SpoolRequestHandler = Callable[[SpoolRequest], SpoolAnswer]


class _SpoolMessage(msgspec.Struct):
    arguments: list[str]


def install_commands(bin_folder: Path, spool_folder: Path) -> None:
    """Install `phasegate` and `agileplus` in a job's `bin` folder, which is first on its PATH."""
    bin_folder.mkdir(parents=True, exist_ok=True)
    for module in (shim, mcp_shim):
        source = Path(str(module.__file__))
        (bin_folder / source.name).write_bytes(source.read_bytes())

    program = bin_folder / "shim.py"
    words = [find_interpreter(), "-I", "-S", str(program), str(spool_folder)]
    for name in COMMANDS:
        command = bin_folder / name
        command.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        command.chmod(0o755)


class RequestSpool:
    """The requests and answers of one job.

    The caller calls `serve_pending`, which never waits, or runs the job in `serve_in_background`.
    """

    def __init__(self, folder: Path) -> None:
        for part in ("requests", "answers"):
            (folder / part).mkdir(parents=True, mode=0o700)

        self.folder = folder
        self.served_count = 0
        self.close_reason = ""
        self._requests_fd = open_folder(folder / "requests")
        self._answers_fd = open_folder(folder / "answers")

    def close(self) -> None:
        for descriptor in (self._requests_fd, self._answers_fd):
            os.close(descriptor)

    def __enter__(self) -> RequestSpool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def serve_in_background(
        self, handler: SpoolRequestHandler, interval_s: float = 0.02
    ) -> AbstractContextManager[None]:
        """Serve requests in a background thread while the block runs.

        The caller's thread is blocked by the job.
        """
        return repeat_in_background(lambda: self.serve_pending(handler), interval_s, "spool")

    def serve_pending(self, handler: SpoolRequestHandler) -> int:
        """Answer pending requests, at most a few at once; return how many."""
        if self.close_reason:
            return 0

        names = self._list_pending()[:MAX_REQUESTS_PER_POLL]
        for name in names:
            self._write_answer(name, self._answer_request(name, handler))
            self.served_count += 1

        return len(names)

    def _list_pending(self) -> list[str]:
        with os.scandir(self._requests_fd) as entries:
            names = [entry.name for entry in islice(entries, MAX_SPOOL_ENTRIES + 1)]
        if len(names) > MAX_SPOOL_ENTRIES:
            self.close_reason = f"more than {MAX_SPOOL_ENTRIES} files in the spool"
            return []
        return [name for name in names if _REQUEST_NAME.fullmatch(name)]

    def _answer_request(self, name: str, handler: SpoolRequestHandler) -> SpoolAnswer:
        """Read and handle one request; return errors as answers for the agent."""
        try:
            data = self._read_request(name)
            if self.served_count >= MAX_REQUESTS_PER_JOB:
                raise InvalidSpoolRequest(
                    f"this job has used up its {MAX_REQUESTS_PER_JOB} requests"
                )

            message = read_json(data, _SpoolMessage)
            return handler(parse_spool_request(message.arguments))
        except (InvalidSpoolRequest, msgspec.DecodeError, RecursionError, OSError) as error:
            return SpoolAnswer(2, stderr=f"phasegate: {error}\n")
        except PhasegateError as error:
            return SpoolAnswer(
                error.exit_code, stderr=f"phasegate: {error.message}\n{error.hint}\n"
            )
        except Exception:
            # A bug in Phasegate must not end the agent's run.
            _log.exception("could not answer a request from inside a job")
            return SpoolAnswer(70, stderr="phasegate: internal error; continue without it\n")

    def _read_request(self, name: str) -> bytes:
        """Return the bytes of a request; refuse links, pipes and large files."""
        data = read_regular_file(name, MAX_REQUEST_BYTES, self._requests_fd, single_link=True)
        if not data:
            raise InvalidSpoolRequest(
                f"a request must be a regular file of 1 to {MAX_REQUEST_BYTES} bytes"
            )

        return data

    def _write_answer(self, name: str, answer: SpoolAnswer) -> None:
        """Delete the request file and write its answer under the same name."""
        # A folder cannot be unlinked: it is refused on each poll, until the request limit.
        with suppress(OSError):
            os.unlink(name, dir_fd=self._requests_fd)

        data = _encode_answer(answer)
        draft = f"{name}.new"
        # If this fails because of the agent, only its own answer is missing.
        with suppress(OSError):
            with os.fdopen(create_new_file(draft, 0o600, self._answers_fd), "wb") as file:
                file.write(data)

            os.rename(draft, name, src_dir_fd=self._answers_fd, dst_dir_fd=self._answers_fd)


def _encode_answer(answer: SpoolAnswer) -> bytes:
    if len(answer.stdout) + len(answer.stderr) > MAX_ANSWER_BYTES:
        answer = SpoolAnswer(
            2, stderr=f"phasegate: the answer is larger than {MAX_ANSWER_BYTES} bytes\n"
        )
    return msgspec.json.encode(answer._asdict())
