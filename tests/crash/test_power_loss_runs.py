"""A power failure in the middle of a dispatch and of a run (O01): the next command goes on by itself.

The command is traced once. Its files are made again as a disk has them that keeps only what was synced, and as one has
them whose names are ahead of their contents: in some of these states here and in every one in the long tests, the same
command is given again. `CUTS=FOLDER SECONDS=500` does so in slices: what was checked is kept in the folder.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.power_cuts import COMMANDS, State, carry_on
from support.power_loss import can_trace

pytestmark = pytest.mark.skipif(not can_trace(), reason="needs strace, and the right to trace")
SAMPLE = {"dispatch": 8, "run": 4, "mended": 40}


def spread(states: list[State], sample: int) -> list[State]:
    """Some of them, the last among them."""
    return [states[len(states) * part // sample - 1] for part in range(1, sample + 1)]


@pytest.mark.demand("W5.a", "W5.c", "D13.i")
@pytest.mark.parametrize(
    "name", ["dispatch", "run", pytest.param("mended", marks=pytest.mark.long)]
)
def test_after_a_power_failure_a_command_goes_on_by_itself(folder: Path, name: str) -> None:
    with COMMANDS[name].traced(folder) as run:
        states = [*run.states().values()]
        assert len(states) > 500
        assert len(run.acknowledged(states[-1].said)) > len(run.recorded) // 2, (
            "what was said is not read"
        )
        for state, where in run.cuts(spread(states, SAMPLE[name])):
            COMMANDS[name].check(run, state, where)


@pytest.mark.long
@pytest.mark.parametrize("name", ["dispatch", "run"])
def test_whatever_a_power_failure_leaves_a_command_goes_on_by_itself(
    kept: Path, until: float, name: str
) -> None:
    room = kept / name
    room.mkdir(parents=True, exist_ok=True)
    result = carry_on(room, name, until)
    print(result)
    if " 0 left" not in result:
        pytest.skip(result)
    assert " 0 failed" in result, [path.read_text() for path in room.glob("failed-*")]
