"""Our command without the time that its imports take: a process that has loaded it forks one for each call.

Nothing but modules is shared: each command is a process of its own that reads the disk anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

_LOADED = ("audit", "dispatch", "run")


class Preloaded:
    """Commands in one folder, with one environment."""

    def __init__(self, said: Path, env: Mapping[str, str]) -> None:
        self._said = said
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "support.preloaded", str(said)],
            env={**env, "PYTHONPATH": str(Path(__file__).parents[1])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def command(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        assert self._parent.stdin
        assert self._parent.stdout
        print(json.dumps([str(folder), *arguments]), file=self._parent.stdin, flush=True)
        code = int(self._parent.stdout.readline())
        return subprocess.CompletedProcess(
            arguments, code, self._said.read_text(errors="replace"), ""
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._parent.communicate()


def _serve(said: str) -> None:
    from importlib import import_module

    from phasegate.__main__ import main

    for name in _LOADED:
        import_module(f"phasegate.interfaces.cli.commands.{name}")
    for line in sys.stdin:
        if child := os.fork():
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            continue
        folder, *arguments = json.loads(line)
        os.chdir(folder)
        out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        for number, target in ((0, os.open(os.devnull, os.O_RDONLY)), (1, out), (2, out)):
            os.dup2(target, number)
        sys.argv[1:] = arguments
        try:
            code = main()
        except SystemExit as end:
            code = int(end.code or 0)
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1])
