"""`phasegate status`: where things stand.

Asked all day: it reads rows and one file, and loads little else.

The plain question is answered before the command line is loaded, which would cost more than the
answer.
"""

from __future__ import annotations

import os
import sys

from phasegate.core.text.light_json import to_plain_data
from phasegate.engine.views.overview import build_overview, open_reader
from phasegate.engine.views.status_text import StatusPage, render_overview, with_dependencies
from phasegate.interfaces.fast_path.next import write_stdout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from phasegate.core.display.status import Style

_ANSI_COLOURS = {"red": 31, "green": 32, "yellow": 33, "cyan": 36, "bold": 1}


def run_fast_path(arguments: list[str]) -> int | None:
    """Answer the plain question.

    None when the command line must look at the arguments, or say what is wrong.
    """
    if arguments not in ([], ["--all"], ["--json"]):
        return None

    try:
        folder = os.getcwd()
        reader = open_reader(folder)
        found = build_overview(reader, folder)
        shown = build_status_page("--all" in arguments)
        if "--json" in arguments:
            text = encode_view(found)
        else:
            text = render_overview(with_dependencies(found, reader, shown), shown)
    except Exception:
        return None

    return write_stdout(text)


def encode_view(view: object) -> str:
    """A view for programs."""
    from json import dumps

    return dumps(to_plain_data(view)) + "\n"


def build_status_page(show_all: bool) -> StatusPage:
    """On a terminal as much as a person takes in; into a file or a pipe all of it."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    has_drawing = (
        is_terminal
        and os.environ.get("TERM") != "dumb"
        and "utf" in (sys.stdout.encoding or "").lower()
    )
    return StatusPage(_detect_width(), show_all or not is_terminal, _choose_style(), has_drawing)


def _detect_width() -> int:
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)

    try:
        # The last cell would wrap in some
        return (os.get_terminal_size(sys.stdout.fileno()).columns or 101) - 1
    except (OSError, ValueError, AttributeError):
        return 100


def can_use_colours() -> bool:
    """Colours go to a terminal, unless the person wants none (no-color.org)."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _choose_style() -> Style:
    if not can_use_colours():
        return lambda text, _: text
    return lambda text, name: (
        f"\x1b[{_ANSI_COLOURS[name]}m{text}\x1b[0m" if text and name in _ANSI_COLOURS else text
    )
