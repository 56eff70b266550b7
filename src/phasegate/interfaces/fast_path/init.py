"""`phasegate init`: answered before the command line is loaded, which would cost more than the
whole work.
"""

from __future__ import annotations

import os
import sys

from phasegate.core.text.visible import escape_unprintable
from phasegate.engine.tools.init import InitResult, prepare_repository
from phasegate.interfaces.fast_path.next import write_stdout


def run_fast_path(arguments: list[str]) -> int | None:
    """Prepare the repository around the current folder.

    None when the command line must look at the arguments.
    """
    if arguments not in ([], ["--json"]):
        return None

    try:
        setup = prepare_repository(os.getcwd(), os.environ)
    except Exception:
        # The command line tries again, and knows how to say what is wrong
        return None

    return print_setup(setup, as_json=bool(arguments))


def print_setup(setup: InitResult, *, as_json: bool) -> int:
    """Each file and what became of it on stdout; what is to be done before the first run on stderr."""
    code = write_stdout(_encode_setup(setup) if as_json else _format_setup(setup))

    for note in setup.notes:
        print(
            f"phasegate: {escape_unprintable(note.what)}\n  hint: {escape_unprintable(note.remedy)}",
            file=sys.stderr,
        )

    return code


def _format_setup(setup: InitResult) -> str:
    lines = []
    for made in setup.files:
        lines.append(f"{escape_unprintable(made.path)}: {made.outcome}")
        lines += [f"  | {line}".rstrip() for line in made.text.splitlines()]
    lines.append(_format_next_step(setup))
    return "".join(f"{line}\n" for line in lines)


def _format_next_step(setup: InitResult) -> str:
    if setup.notes:
        return "Prepared. Before the first run, see below."
    return "Prepared. Look through both files and commit them. Then see what the checks say: phasegate check"


def _encode_setup(setup: InitResult) -> str:
    from json import dumps

    files = [{"path": made.path, "outcome": made.outcome} for made in setup.files]
    notes = [note._asdict() for note in setup.notes]
    data = {
        "root": setup.root,
        "files": files,
        "agents": setup.agents,
        "profile": setup.profile,
        "notes": notes,
    }

    return dumps(data) + "\n"
