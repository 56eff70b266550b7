"""The transcript in README.md has the lines that the program prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from phasegate.core.text.markdown_lines import iter_markdown_lines

README = Path(__file__).parents[2] / "README.md"
OMITTED = "..."


def generalize(line: str) -> str:
    """Replace what differs from run to run: commits and the number of entries."""
    line = re.sub(r"\b[0-9a-f]{12}\b", "COMMIT", line)
    return re.sub(r"\b\d+ entries\b", "N entries", line).rstrip()


def read_transcript() -> list[str]:
    """Return the lines of the code block that follows `The output ends with:`."""
    text = README.read_text(encoding="utf-8").partition("The output ends with:")[2]
    block: list[str] = []
    for line in iter_markdown_lines(text):
        if line.fence_info is not None:
            block.append(line.text)
        elif block:
            break
    return [line for line in block if not line.startswith("```")]


def find_missing(transcript: list[str], printed: list[str]) -> list[str]:
    """Return the lines of a transcript that were not printed, or not in this order.

    Without an omission between them, two lines follow each other in what was printed.
    """
    missing = []
    position, may_skip = 0, True
    for line in transcript:
        if line == OMITTED:
            may_skip = True
            continue

        end = len(printed) if may_skip else position + 1
        if generalize(line) in printed[position:end]:
            position = printed.index(generalize(line), position) + 1
        else:
            missing.append(line)
        may_skip = False
    return missing


def test_lines_that_differ_are_found() -> None:
    printed = ["a", "b", "merged at COMMIT", "c"]
    assert find_missing(["a", "b", "merged at 0123456789ab", "c"], printed) == []
    assert find_missing(["a", "...", "c"], printed) == []
    assert find_missing(["a", "c"], printed) == ["c"]
    assert find_missing(["a", "b", "x"], printed) == ["x"]


@pytest.mark.long
def test_the_transcript_of_the_demo_is_what_the_demo_prints(tmp_path: Path) -> None:
    transcript = read_transcript()
    assert len(transcript) > 10
    done = subprocess.run(
        [sys.executable, "-m", "phasegate", "demo"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    printed = [generalize(line) for line in done.stdout.splitlines()]
    assert find_missing(transcript, printed) == []
    assert printed[-1] == generalize(transcript[-1]), "it ends with these lines"


def test_the_install_line_without_a_tool_works_in_an_empty_home(tmp_path: Path) -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    (line,) = [one for one in lines if one.startswith("python3 -m venv ")]
    home, programs = tmp_path / "home", tmp_path / "programs"
    home.mkdir()
    programs.mkdir()
    # Creates the environment without downloading anything
    stub = '#!/bin/sh\nmkdir -p "$3/bin"\nfor name in pip phasegate; do\n'
    stub += '  printf "#!/bin/sh\\n" > "$3/bin/$name"; chmod +x "$3/bin/$name"\ndone\n'
    (programs / "python3").write_text(stub)
    (programs / "python3").chmod(0o755)
    env = {"HOME": str(home), "PATH": f"{programs}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", line], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    installed = home / ".local/bin/phasegate"
    assert installed.resolve() == (home / ".venvs/phasegate/bin/phasegate").resolve()
