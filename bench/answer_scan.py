"""Reading an agent's answer, against `text.find('<review>')` over the same text and the published patterns."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from bench.measure import Row, in_turn
from phasegate.core.answer.parse import parse_answer

GOAL = 10  # a tenth of the speed of `find`; the stretch is 2
SIZE = 4_000_000
PASS = "\n<review>PASS</review>\n"
SENTENCE = (
    "the handler reads each request and checks its token against the store so that a value is returned when it is "
    "valid or an error when it is not; a review of every path found no gap, and all tests pass on a clean checkout"
)
CODE = 'def check(a, b):\n    if a < b and b > 0:  # compare\n        return {"k": [a, b], "c": f"{a}"}\n    return None\n'
# What a program would run over an answer if it took the published patterns as they are.
PATTERNS = [
    re.compile(r"<review>(PASS|NEEDS_REVISION|NEEDS_CHANGES|REJECTED|MAJOR_ISSUES)</review>"),
    re.compile(r'<task_status id="(\d+\.\d+)">(COMPLETED|FAILED)</task_status>'),
    re.compile(r"<thought>.*?</thought>", re.DOTALL),
    re.compile(r"^---\nSUGGESTED NEXT STEPS:\n(?:  \[\d\] .+\n){2,4}---$", re.MULTILINE),
    re.compile(r"^---\nSTATUS: .+\n---$", re.MULTILINE),
]


def rows() -> list[Row]:
    prose = _prose(SIZE)
    mixed = "".join(
        f"{prose[at : at + 8_000]}\n```python\n{CODE * 8}```\n" for at in range(0, SIZE, 9_000)
    )
    return [
        _against_find("answer scan, prose", prose),
        _against_find("answer scan, prose with dashes (not ASCII)", prose.replace(" a ", " — ")),
        _against_find("answer scan, prose and code fences", mixed),
        _against_find("answer scan, CRLF", prose.replace("\n", "\r\n")),
        _against_patterns("answer scan, against the published patterns", mixed),
    ]


def _prose(size: int) -> str:
    dice = random.Random(1)
    words = SENTENCE.split()
    lines = [" ".join(dice.choices(words, k=14)) for _ in range(size // 70)]
    return "\n".join(lines)[:size]


def _against_find(name: str, text: str) -> Row:
    ours, reference = in_turn(_scan(text + PASS), lambda: text.find("<review>"))
    return Row(name, ours, reference, GOAL)


def _against_patterns(name: str, text: str) -> Row:
    ours, reference = in_turn(
        _scan(text + PASS), lambda: [pattern.search(text) for pattern in PATTERNS]
    )
    return Row(name, ours, reference, 1)


def _scan(text: str) -> Callable[[], object]:
    def scan() -> None:
        assert parse_answer(text, "review").verdict == "PASS"

    return scan
