"""Run a command and draw what it printed as an animated SVG: each line appears when it was printed.

Usage: python -m tools.terminal_svg FILE.svg phasegate demo --hostile
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from phasegate.core.text.wrap import wrap_line

COLUMNS = 100
_LINE_PX = 18
_CHAR_PX = 7.8
_MARGIN_PX = 16
# The whole recording is played in this time, however busy the machine was
_PLAY_S = 9.0
_COLOURS = {"  ok": "#63c08c", "  NO": "#ef8a80", "All ": "#63c08c", "$ ": "#93a6f7"}


class PrintedLine(NamedTuple):
    """A line, and when it was printed."""

    at_s: float
    text: str


def record(command: Sequence[str]) -> list[PrintedLine]:
    """Run a command in an empty folder; raise if it fails."""
    lines = [PrintedLine(0.0, f"$ {' '.join(command)}")]
    started = time.monotonic()
    argv = [sys.executable, "-m", *command]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            argv, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(PrintedLine(time.monotonic() - started, line.rstrip("\n")))

    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {lines[-1].text}")
    return lines


def draw(lines: Sequence[PrintedLine]) -> str:
    """Return the SVG of a recording. Without animation, as in print, all lines are visible."""
    scale = _PLAY_S / (lines[-1].at_s or 1.0)
    rows = [
        PrintedLine(line.at_s * scale, part)
        for line in lines
        for part in wrap_line(line.text, COLUMNS) or [""]
    ]
    width = round(COLUMNS * _CHAR_PX + 2 * _MARGIN_PX)
    height = len(rows) * _LINE_PX + 2 * _MARGIN_PX
    texts = []
    for number, row in enumerate(rows):
        colour = next((code for start, code in _COLOURS.items() if row.text.startswith(start)), "")
        fill = f' fill="{colour}"' if colour else ""
        y = _MARGIN_PX + (number + 1) * _LINE_PX - 5
        texts.append(
            f'<text x="{_MARGIN_PX}" y="{y}"{fill} style="animation-delay:{row.at_s:.2f}s">'
            f"{escape(row.text)}</text>"
        )

    style = (
        "text{font:13px ui-monospace,'DejaVu Sans Mono',Menlo,monospace;white-space:pre;"
        "animation:show .01s both}@keyframes show{from{opacity:0}to{opacity:1}}"
        "@media (prefers-reduced-motion:reduce){text{animation:none}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' role="img" aria-label="{escape(lines[0].text)}"><style>{style}</style>'
        f'<rect width="{width}" height="{height}" rx="10" fill="#16171a"/>'
        f'<g fill="#e8e9e4" xml:space="preserve">\n{chr(10).join(texts)}\n</g></svg>\n'
    )


def main(arguments: list[str]) -> int:
    """Record the command and write the file."""
    target, *command = arguments
    Path(target).write_text(draw(record(command)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
