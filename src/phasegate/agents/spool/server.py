"""The orchestrator's side of a job's spool: requests of an agent are read, answered and bounded.

The folder belongs to the agent, so nothing in it is trusted. Its two folders are held open from before the agent's
start: what it puts in their place later is not looked at. No link is followed, and only small plain files are read.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasegate.agents.spool import mcp_shim, shim
from phasegate.agents.spool.requests import SpoolRequest, Unanswerable, read_request
from phasegate.errors import PhasegateError
from phasegate.files import open_folder, open_new, read_plain
from phasegate.sandbox.readable_paths import interpreter
from phasegate.typed import read_json

COMMANDS = ("phasegate", "agileplus")
LARGEST_REQUEST_BYTES = 2 * shim.LARGEST_CONTENT_BYTES  # JSON writes some characters as several
LARGEST_ANSWER_BYTES = 1_000_000
MOST_AT_ONCE = 16
MOST_IN_A_JOB = 1_000
MOST_ENTRIES = 4_096
_NAME = re.compile(r"[0-9a-f]{32}\.json")
_log = logging.getLogger(__name__)


class SpoolAnswer(NamedTuple):
    """What a command shows the agent."""

    exit_status: int
    stdout: str = ""
    stderr: str = ""


Answerer = Callable[[SpoolRequest], SpoolAnswer]


class _Wire(msgspec.Struct):
    arguments: list[str]


def place_commands(programs: Path, spool: Path) -> None:
    """Put `phasegate` and `agileplus` into a job's folder of programs, which goes first on its PATH."""
    programs.mkdir(parents=True, exist_ok=True)
    for module in (shim, mcp_shim):
        source = Path(str(module.__file__))
        (programs / source.name).write_bytes(source.read_bytes())
    program = programs / "shim.py"
    words = [interpreter(), "-I", "-S", str(program), str(spool)]
    for name in COMMANDS:
        command = programs / name
        command.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        command.chmod(0o755)


class RequestSpool:
    """One job's requests and answers. The dispatcher calls `serve`, which never waits, or runs the job in `serving`."""

    def __init__(self, folder: Path) -> None:
        for part in ("requests", "answers"):
            (folder / part).mkdir(parents=True, mode=0o700)
        self.folder = folder
        self.served = 0
        self.closed_because = ""
        self._requests = open_folder(folder / "requests")
        self._answers = open_folder(folder / "answers")

    def close(self) -> None:
        for descriptor in (self._requests, self._answers):
            os.close(descriptor)

    def __enter__(self) -> RequestSpool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def serving(self, answer: Answerer, every_s: float = 0.02) -> Iterator[None]:
        """Serve as long as the block runs, in a thread of its own: the one that runs the job waits for the job."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(every_s):
                self.serve(answer)

        thread = threading.Thread(target=look, name="spool", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def serve(self, answer: Answerer) -> int:
        """Answer the requests that wait, at most a few at once, and say how many there were."""
        names = self._waiting() if not self.closed_because else []
        for name in names[:MOST_AT_ONCE]:
            self._put(name, self._answered(name, answer))
            self.served += 1
        return len(names[:MOST_AT_ONCE])

    def _waiting(self) -> list[str]:
        with os.scandir(self._requests) as entries:
            names = [entry.name for entry in islice(entries, MOST_ENTRIES + 1)]
        if len(names) > MOST_ENTRIES:
            self.closed_because = f"more than {MOST_ENTRIES} files in the spool"
            return []
        return [name for name in names if _NAME.fullmatch(name)]

    def _answered(self, name: str, answer: Answerer) -> SpoolAnswer:
        try:
            data = self._taken(name)
            if self.served >= MOST_IN_A_JOB:
                raise Unanswerable(f"this job has used up its {MOST_IN_A_JOB} requests")
            wire = read_json(data, _Wire)
            return answer(read_request(wire.arguments))
        except (Unanswerable, msgspec.DecodeError, RecursionError, OSError) as error:
            return SpoolAnswer(2, stderr=f"phasegate: {error}\n")
        except PhasegateError as error:
            return SpoolAnswer(error.exit_code, stderr=f"phasegate: {error.message}\n{error.hint}\n")
        except Exception:  # our own mistake must not end the agent's run
            _log.exception("a request from inside a job could not be answered")
            return SpoolAnswer(70, stderr="phasegate: an internal error; go on without it\n")

    def _taken(self, name: str) -> bytes:
        """The bytes of a request, which is then gone. Links, pipes and what is too large are refused."""
        data = read_plain(name, LARGEST_REQUEST_BYTES, self._requests, one_name=True)
        if not data:
            raise Unanswerable(f"a request is a plain file of 1 to {LARGEST_REQUEST_BYTES} bytes")
        return data

    def _put(self, name: str, answer: SpoolAnswer) -> None:
        with suppress(OSError):  # a folder under that name: asked again, and refused again, until the limit
            os.unlink(name, dir_fd=self._requests)
        data = _encoded(answer)
        draft = f"{name}.new"
        with suppress(OSError):  # the agent only keeps its own answer from itself
            with os.fdopen(open_new(draft, 0o600, self._answers), "wb") as file:
                file.write(data)
            os.rename(draft, name, src_dir_fd=self._answers, dst_dir_fd=self._answers)


def _encoded(answer: SpoolAnswer) -> bytes:
    if len(answer.stdout) + len(answer.stderr) > LARGEST_ANSWER_BYTES:
        answer = SpoolAnswer(2, stderr=f"phasegate: the answer is larger than {LARGEST_ANSWER_BYTES} bytes\n")
    return msgspec.json.encode(answer._asdict())
