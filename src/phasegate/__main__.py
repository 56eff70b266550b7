"""Entry point of `phasegate`, `agileplus` and `python -m phasegate`."""

from __future__ import annotations

import gc
import sys
from io import TextIOWrapper


def main() -> int:
    """Run a command: on its fast path if it has one, otherwise through the command line."""
    arguments = sys.argv[1:]
    for stream in (sys.stdout, sys.stderr):
        # An ASCII-only terminal gets other characters as escapes instead of a traceback.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    code = _try_fast_path(arguments)
    if code is not None:
        return code

    from phasegate.interfaces.cli.main import run_command

    code = run_command(arguments)

    # Threads of Temporal outlive the interpreter and would abort the process during its shutdown.
    if "temporalio" in sys.modules:
        from os import _exit

        sys.stdout.flush()
        sys.stderr.flush()
        _exit(code)

    return code


def _try_fast_path(arguments: list[str]) -> int | None:
    """Run `next`, `init` or `status` without importing the command line.

    Return its exit code, or None if the command line must handle the arguments. Importing the
    command line costs more CPU time than the commands themselves (docs/adr/0003-fast-paths.md).
    """
    command, *options = arguments or [""]

    if command == "next":
        from phasegate.interfaces.fast_path.next import run_fast_path
    elif command == "init":
        from phasegate.interfaces.fast_path.init import run_fast_path
    elif command == "status":
        from phasegate.interfaces.fast_path.status import run_fast_path
    else:
        return None

    # A process of 30 ms has no garbage to collect, and the collector takes a tenth of that time.
    gc.disable()
    code = run_fast_path(options)
    if code is None:
        gc.enable()
    else:
        gc.freeze()

    return code


if __name__ == "__main__":
    sys.exit(main())
