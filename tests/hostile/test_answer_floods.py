"""Reading an answer takes time in proportion to its length, whatever its shape (M06)."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from phasegate.core.answer.parse import parse_answer
from phasegate.core.text.escapes import sanitize_for_terminal
from support.growth import assert_grows_no_faster_than_its_input

PASS = "\n<review>PASS</review>\n"
UNITS = {
    "comments opened": "<!--",
    "comments": "<!---->",
    "comments and entities": "&lt;<!-- -->",
    "half comments": "<!- ",
    "CDATA": "<![CDATA[]]>",
    "CDATA opened": "<![CDATA[",
    "thoughts opened": "<thought>",
    "thoughts": "<thought></thought>",
    "thoughts on lines": "<thought>\n</thought>\n",
    "thought tags cut off": "<thought ",
    "thoughts closed": "</thought>",
    "fences": "```\n",
    "fences of both kinds": "```\n~~~\n```\n~~~\n",
    "fences with info": "```x\n```\n",
    "inline fences": "```x",
    "fences that do not close": "````\n```\n",
    "backticks": "`",
    "backticks on lines": "`\n",
    "tildes": "~",
    "blanks and backticks": "   ` ",
    "blank lines": "   \n",
    "blanks": " ",
    "tabs": "\t",
    "angle brackets": "<",
    "angle brackets and blanks": "< ",
    "angle brackets and letters": "<revie",
    "angle brackets and slashes": "<///",
    "reviews": "<review>",
    "review lines": "<review>NEEDS_CHANGES</review>\n",
    "passes": "<review>PASS</review>\n",
    "blanks after markers": "<review>PASS</review>          x\n",
    "task lines": '<task_status id="1.1">FAILED</task_status>\n',
    "task tags": "<task_status ",
    "entities": "&amp;amp;amp;lt;",
    "entity zeros": "&#00000000",
    "percents": "%25%25",
    "backslashes": "\\",
    "wide brackets": "＜",
    "wide brackets and letters": "＜ｒ",
    "wide letters": "<ｒｅｖｉｅ",
    "invisible characters": "<r\u200b\u200b\u200b",
    "braces": "{",
    "closing braces": "}",
    "brackets": "[",
    "braces and quotes": '{"',
    "keys": '{"success":',
    "keys and braces": '{"success":{',
    "values": '{"success":1 ',
    "objects": '{"success":1}',
    "lists in objects": '{"job_id":[',
    "quotes": '"',
    "escaped quotes": '\\"',
    "keys in fences": '```json\n{"success":1}\n```\n',
    "keys in comments": '<!--{"success":1}-->',
    "escapes": "\x1b",
    "colours": "\x1b[0m",
    "colours cut off": "\x1b[0;",
    "titles": "\x1b]0;t\x07",
    "titles opened": "\x1b]",
    "control strings opened": "\x1bP",
    "8-bit controls": "\x9b",
    "8-bit strings": "\x9d",
    "colours in markers": "<review>PA\x1b[mSS</review>\n",
    "carriage returns": "\r",
    "delimiters": "---\n",
    "headers": "---\nSUGGESTED NEXT STEPS:\n",
    "items": "  [1] x\n",
    "blockers": "BLOCKER:\n",
    "blockers on a line": "BLOCKER: ",
    "letters": "x",
    "words": "the review of <b>it</b> & `that`\n",
}


def assert_takes_no_more_than_its_length(
    read: Callable[[str], object], unit: str, size: int
) -> None:
    assert_grows_no_faster_than_its_input(
        read, lambda length: unit * (length // len(unit)), size, 8 * size
    )


def read_answer(text: str) -> object:
    return parse_answer(text + PASS, "review"), parse_answer('{"success"' + text, "implement")


@pytest.mark.demand("P6.j")
@pytest.mark.parametrize("name", UNITS)
def test_no_shape_of_text_takes_more_than_its_length(name: str) -> None:
    assert_takes_no_more_than_its_length(read_answer, UNITS[name], 16_000)


@pytest.mark.parametrize(
    "name", ["escapes", "colours", "titles opened", "8-bit controls", "carriage returns", "letters"]
)
def test_showing_a_text_takes_no_more_than_its_length(name: str) -> None:
    assert_takes_no_more_than_its_length(sanitize_for_terminal, UNITS[name], 30_000)


def test_the_measure_finds_what_is_quadratic() -> None:
    """The control: a careless pattern over one of these shapes."""
    careless = re.compile(r"<!--.*?-->", re.DOTALL)
    with pytest.raises(AssertionError, match="grew too fast"):
        assert_takes_no_more_than_its_length(lambda text: careless.sub("", text), "<!--", 1_000)
