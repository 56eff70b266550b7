"""`phasegate init`: answered before the command line is loaded, which would cost more than the whole work."""

from __future__ import annotations

import os
import sys

from phasegate.core.text.visible import visible
from phasegate.engine.tools.init import Setup, prepare
from phasegate.interfaces.fast_path.next import write_out


def answer(arguments: list[str]) -> int | None:
    """Prepare the repository around the current folder; None when the command line must look at the arguments."""
    if arguments not in ([], ["--json"]):
        return None
    try:
        setup = prepare(os.getcwd(), os.environ)
    except Exception:
        return None  # the command line tries again, and knows how to say what is wrong
    return show(setup, as_json=bool(arguments))


def show(setup: Setup, *, as_json: bool) -> int:
    """Each file and what became of it on stdout; what is to be done before the first run on stderr."""
    code = write_out(_as_json(setup) if as_json else _as_text(setup))
    for note in setup.notes:
        print(f"phasegate: {visible(note.what)}\n  hint: {visible(note.remedy)}", file=sys.stderr)
    return code


def _as_text(setup: Setup) -> str:
    lines = []
    for made in setup.files:
        lines.append(f"{visible(made.path)}: {made.outcome}")
        lines += [f"  | {line}".rstrip() for line in made.text.splitlines()]
    lines.append(_next_step(setup))
    return "".join(f"{line}\n" for line in lines)


def _next_step(setup: Setup) -> str:
    if setup.notes:
        return "Prepared. Before the first run, see below."
    return "Prepared. Look through both files and commit them. Then see what the checks say: phasegate check"


def _as_json(setup: Setup) -> str:
    from json import dumps

    files = [{"path": made.path, "outcome": made.outcome} for made in setup.files]
    notes = [note._asdict() for note in setup.notes]
    data = {"root": setup.root, "files": files, "agents": setup.agents, "profile": setup.profile, "notes": notes}
    return dumps(data) + "\n"
