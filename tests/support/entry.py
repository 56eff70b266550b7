"""The program's one entry, called in this process: where a process of its own is no part of the claim."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from phasegate.__main__ import main


class Done(NamedTuple):
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


def phasegate(*arguments: str, cwd: Path, stdin: bytes = b"") -> Done:
    """What `phasegate ARGUMENTS` writes in this folder, to the byte, and its exit code."""
    raw, raw_err = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(stream, encoding="utf-8", newline="") for stream in (raw, raw_err))
    argv = mock.patch.object(sys, "argv", ["phasegate", *arguments])
    given = mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
    # Where another test loaded Temporal's client, the entry would leave this process at once.
    stays = (
        mock.patch.object(os, "_exit") if "temporalio" in sys.modules else contextlib.nullcontext()
    )
    lives_on = mock.patch.object(
        gc, "freeze"
    )  # a quick answer leaves the collector off, since its process ends
    said, told = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with argv, given, stays, lives_on, said, told, contextlib.chdir(cwd):
        code = main()
    gc.enable()
    out.flush()
    err.flush()
    return Done(code, raw.getvalue().decode(), raw_err.getvalue().decode())
