"""Mutated answers against the slow grammar: no exception, no PASS that is none (C11).

As long as you like: `cd tests && python -m support.answer_fuzz --seconds 600 --seed 7`.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from phasegate.core.answer.parse import parse_answer
from support.answer_corpus import CHANGES, GENUINE, HOSTILE, NO_RESULT, OK_RESULT, PASS, STEPS
from support.slow_answer import slow_verdict

PHASES = ["plan", "challenge", "implement", "review", "archive"]
# Whatever could open, close, split or disguise something.
ATOMS = [
    *[
        PASS,
        CHANGES,
        "<review>REJECTED</review>",
        "<review>NEEDS_REVISION</review>",
        "<review>MAJOR_ISSUES</review>",
    ],
    *[
        '<task_status id="1.1">COMPLETED</task_status>',
        OK_RESULT,
        NO_RESULT,
        STEPS,
        "---\nSTATUS: x\n---",
        "---",
    ],
    *[
        "<thought>",
        "</thought>",
        "<THOUGHT x='>",
        "<thought/>",
        "<!--",
        "-->",
        "<!-->",
        "--",
        "<![CDATA[",
        "]]>",
        "<![cdata[",
    ],
    *[
        "```",
        "````",
        "~~~",
        "~~~~",
        "```json",
        "``",
        "`",
        "   ```",
        "    ```",
        "\n```\n",
        "\n~~~\n",
        "```\n```",
    ],
    *[
        "\n",
        "\r",
        "\r\n",
        "\n\n",
        " ",
        "\t",
        "   ",
        "\x0b",
        "\x0c",
        "\x85",
        "\u2028",
        "\u00a0",
        "\x00",
        "\x08",
        "\x07",
    ],
    *[
        "\x1b[0m",
        "\x1b[2K",
        "\x1b]0;t\x07",
        "\x1b]8;;u\x1b\\",
        "\x1b]",
        "\x1bP",
        "\x1b\\",
        "\x1b",
        "\x9b1m",
        "\x9d",
        "\x9c",
        "\x1b(B",
    ],
    *[
        "<",
        ">",
        "/",
        "<review",
        "</review>",
        "<Review>",
        "< review",
        "&lt;review",
        "&amp;lt;review",
        "&#60;/review",
        "%3creview",
    ],
    *[
        "\\u003creview",
        "＜review",
        "<ｒeview",
        "<rеview",
        "<re\u200bview",
        "<r\u0301eview",
        "\u200b",
        "\ufeff",
        "\u00ad",
        "\ufffd",
    ],
    *[
        "{",
        "}",
        "[",
        "]",
        '"',
        '{"',
        '"success"',
        '"job_id": 1',
        ", ",
        ":",
        "\\",
        "NaN",
        "true",
        "1e999",
        "x",
        "é",
        "語",
        "😀",
    ],
]
WORDS = [
    "The",
    "tests",
    "pass",
    "review",
    "a < b",
    "`code`",
    "é",
    "—",
    "(see",
    "below)",
    "10 %",
    "**bold**",
    "x & y",
    "FAIL",
]


TEXTS = [(hostile.text, hostile.phase) for hostile in HOSTILE] + [
    (genuine.text, genuine.phase) for genuine in GENUINE
]


class Mutant(NamedTuple):
    text: str
    phase: str
    truncated: bool
    is_genuine: bool  # made from a PASS by changes that leave it one


def mutants(seed: int) -> Iterator[Mutant]:
    """Without end, the same for the same seed."""
    dice = random.Random(seed)
    while True:
        yield _genuine(dice) if dice.random() < 0.1 else _mutant(dice)


def _genuine(dice: random.Random) -> Mutant:
    base = dice.choice([genuine for genuine in GENUINE if genuine.verdict == "PASS"])
    prose = "".join(
        " ".join(dice.choices(WORDS, k=dice.randint(1, 9))) + "\n"
        for _ in range(dice.randint(0, 5))
    )
    return Mutant(prose + base.text, base.phase, False, True)


def _mutant(dice: random.Random) -> Mutant:
    text, phase = dice.choice(TEXTS)
    for _ in range(dice.choice([1, 1, 2, 3, 5, 8])):
        text = _changed(text, dice)
    phase = phase if dice.random() < 0.8 else dice.choice(PHASES)
    return Mutant(text[:3000], phase, dice.random() < 0.05, False)


def _changed(text: str, dice: random.Random) -> str:
    start, end = sorted((_place(text, dice), _place(text, dice)))
    match dice.randrange(7):
        case 0:
            return text[:start] + text[end:]
        case 1:
            return text[:end] + text[start:]
        case 2:
            return text[:start] + dice.choice(TEXTS)[0] + text[start:]
        case 3:
            return (
                text[:start]
                + dice.choice(ATOMS)
                + text[start:end]
                + dice.choice(ATOMS)
                + text[end:]
            )
        case 4:
            return text[:start] + text[start + 1 :]
        case _:
            return text[:start] + dice.choice(ATOMS) + text[start:]


def _place(text: str, dice: random.Random) -> int:
    """Anywhere, but often where a line starts or ends."""
    place = dice.randint(0, len(text))
    return text.rfind("\n", 0, place) + dice.randint(0, 1) if dice.random() < 0.5 else place


def complaint(mutant: Mutant) -> str:
    """What is wrong with our reading of it; empty if nothing is."""
    answer = parse_answer(mutant.text, mutant.phase, truncated=mutant.truncated)
    expected = slow_verdict(mutant.text, mutant.phase, mutant.truncated)
    if (answer.verdict, answer.error) != expected:
        return f"we say {answer.verdict}, {answer.error}; the slow grammar says {expected}"
    if mutant.is_genuine and answer.verdict != "PASS":
        return f"a genuine PASS is refused: {answer.reason}"
    if any(char == "\x1b" or "\x80" <= char <= "\x9f" for char in answer.text):
        return "an escape sequence is left"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    passed = 0
    for count, mutant in enumerate(mutants(options.seed), 1):
        if wrong := complaint(mutant):
            print(f"{wrong}\nphase {mutant.phase}, truncated {mutant.truncated}\n{mutant.text!r}")
            return 1
        passed += mutant.is_genuine
        if time.monotonic() > until:
            print(f"{count} answers, {passed} of them genuine: no complaint (seed {options.seed})")
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
