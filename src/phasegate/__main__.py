"""The one entry: `phasegate`, `agileplus` and `python -m phasegate`."""

from __future__ import annotations

import sys


def main() -> int:
    """Answer a hook and `init` at once; hand everything else to the command line."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["next"]:
        from phasegate.doors.hook import answer

        code = answer(arguments[1:])
        if code is not None:
            return code
    elif arguments[:1] == ["init"]:
        from phasegate.doors.setup import answer as prepare

        code = prepare(arguments[1:])
        if code is not None:
            return code
    from phasegate.doors.cli import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
