"""The one entry: `phasegate`, `agileplus` and `python -m phasegate`."""

from __future__ import annotations

import gc
import sys
from io import TextIOWrapper


def main() -> int:
    """Answer what must be quick at once; hand everything else to the command line."""
    arguments = sys.argv[1:]
    for stream in (sys.stdout, sys.stderr):
        # One that knows ASCII alone gets the rest as escapes, not a traceback
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")

    code = _try_fast_path(arguments)
    if code is not None:
        return code

    from phasegate.interfaces.cli import run_command

    code = run_command(arguments)

    # Its threads outlive the interpreter, and would abort the process on the way out
    if "temporalio" in sys.modules:
        from os import _exit

        sys.stdout.flush()
        sys.stderr.flush()
        _exit(code)

    return code


def _try_fast_path(arguments: list[str]) -> int | None:
    """The answer of a door that does without the command line, which costs more than each of them."""
    command, *options = arguments or [""]

    if command == "next":
        from phasegate.interfaces.fast_path.next import run_fast_path
    elif command == "init":
        from phasegate.interfaces.fast_path.init import run_fast_path
    elif command == "status":
        from phasegate.interfaces.fast_path.status import run_fast_path
    else:
        return None

    # What lives for a twentieth of a second has nothing to collect, and the look costs a tenth of
    # it
    gc.disable()
    code = run_fast_path(options)
    gc.enable() if code is None else gc.freeze()

    return code


if __name__ == "__main__":
    sys.exit(main())
