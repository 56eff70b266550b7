"""The reason why a program without a protocol failed."""

import pytest

from phasegate.agents.port import Ending, FinishedRun
from phasegate.agents.stream.plain_output import classify_exit

TRACEBACK = """Traceback (most recent call last):
  File "/x/pathlib.py", line 1044, in read_text
    with self.open(mode="r", encoding=encoding, errors=errors) as f:
FileNotFoundError: No such file: 'answer'
"""


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        (TRACEBACK, "exit status 1: FileNotFoundError: No such file: 'answer'"),
        ("Error: no model\n    at main (cli.js:3)\n", "exit status 1: Error: no model"),
    ],
)
def test_the_reason_is_the_line_that_states_the_error(stderr: str, reason: str) -> None:
    assert classify_exit(FinishedRun(1, "", stderr)) == (Ending.FAILED, reason)
