"""`phasegate init`: answered without the command line, whose import takes longer than the work."""

from __future__ import annotations

import os
import sys

from phasegate.core.text.visible import escape_unprintable
from phasegate.engine.tools.init import InitResult, prepare_repository
from phasegate.interfaces.fast_path.next import write_stdout


def run_fast_path(arguments: list[str]) -> int | None:
    """Prepare the repository that contains the current folder.

    Return None if the command line must handle the arguments.
    """
    if arguments not in ([], ["--json"]):
        return None

    try:
        setup = prepare_repository(os.getcwd(), os.environ)
    except Exception:
        # The command line tries again and reports the error
        return None

    return print_setup(setup, as_json=bool(arguments))


def print_setup(setup: InitResult, *, as_json: bool) -> int:
    """Print each file with its outcome to stdout, and what to do before a run to stderr."""
    code = write_stdout(_encode_setup(setup) if as_json else _format_setup(setup))

    for note in setup.notes:
        print(f"phasegate: {escape_unprintable(note.what)}", file=sys.stderr)
        print(f"  hint: {escape_unprintable(note.remedy)}", file=sys.stderr)

    return code


def _format_setup(setup: InitResult) -> str:
    lines = []
    for file in setup.files:
        lines.append(f"{escape_unprintable(file.path)}: {file.outcome}")
        lines += [f"  | {line}".rstrip() for line in file.text.splitlines()]
    lines.append(_format_next_step(setup))
    return "".join(f"{line}\n" for line in lines)


def _format_next_step(setup: InitResult) -> str:
    if setup.notes:
        return f"Prepared. Before the first run: {escape_unprintable(setup.notes[0].what)}"
    return "Prepared. Review and commit both files. Then run the checks: phasegate check"


def _encode_setup(setup: InitResult) -> str:
    """Return the result of `init` as JSON."""
    from json import dumps

    files = [{"path": file.path, "outcome": file.outcome} for file in setup.files]
    notes = [note._asdict() for note in setup.notes]
    data = {
        "root": setup.root,
        "files": files,
        "agents": setup.agents,
        "profile": setup.profile,
        "notes": notes,
    }

    return dumps(data) + "\n"
