"""`phasegate status`: answered without the command line, whose import takes longer than the answer.

It runs all day: it reads rows and one file, and loads little else.
"""

from __future__ import annotations

import os
import sys

from phasegate.core.text.light_json import to_plain_data
from phasegate.engine.views.overview import build_overview, is_config_unchecked, open_reader
from phasegate.engine.views.status_text import StatusPage, render_overview, with_dependencies
from phasegate.interfaces.fast_path.next import write_stdout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from phasegate.core.display.status import Style

_ANSI_COLOURS = {"red": 31, "green": 32, "yellow": 33, "cyan": 36, "bold": 1}


def run_fast_path(arguments: list[str]) -> int | None:
    """Print the status.

    Return None if the command line must handle the arguments or report an error.
    """
    if arguments not in ([], ["--all"], ["--json"]):
        return None

    try:
        folder = os.getcwd()
        reader = open_reader(folder)
        if reader is None or is_config_unchecked(reader):
            return None

        overview = build_overview(reader, folder)
        page = build_status_page("--all" in arguments)
        if "--json" in arguments:
            text = encode_view(overview)
        else:
            text = render_overview(with_dependencies(overview, reader, page), page)
    except Exception:
        return None

    return write_stdout(text)


def encode_view(view: object) -> str:
    """Encode a view as JSON."""
    from json import dumps

    return dumps(to_plain_data(view)) + "\n"


def build_status_page(show_all: bool) -> StatusPage:
    """Choose what to show: a summary on a terminal, everything in a file or a pipe."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    has_drawing = (
        is_terminal
        and os.environ.get("TERM") != "dumb"
        and "utf" in (sys.stdout.encoding or "").lower()
    )
    return StatusPage(_detect_width(), show_all or not is_terminal, _choose_style(), has_drawing)


def _detect_width() -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)

    try:
        # Some terminals wrap after the last cell
        return (os.get_terminal_size(sys.stdout.fileno()).columns or 101) - 1
    except (OSError, ValueError, AttributeError):
        return 100


def can_use_colours() -> bool:
    """Return whether to use colours: on a terminal, unless NO_COLOR is set (no-color.org)."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _choose_style() -> Style:
    if not can_use_colours():
        return lambda text, _: text
    return lambda text, name: (
        f"\x1b[{_ANSI_COLOURS[name]}m{text}\x1b[0m" if text and name in _ANSI_COLOURS else text
    )
