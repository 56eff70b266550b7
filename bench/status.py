"""`phasegate status` with a thousand work packages, against an interpreter that does nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.measure import Row, command, in_turn
from bench.peer_asks import STATUS
from bench.peer_runs import peer_times
from bench.store import fill
from phasegate.core.workflow.workflow_phases import WORKFLOWS

GOAL, GROWTH_GOAL = 6, 5.5


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as room:
        few, many = project(Path(room) / "few", 1000), project(Path(room) / "many", 5000)
        ask = [str(Path(sys.executable).with_name("phasegate")), "status"]
        said = subprocess.run(ask, cwd=few, check=True, capture_output=True, text=True).stdout
        assert "Phase 03 - Architecture" in said
        assert said.count(" a title") == 1000
        ours, nothing = in_turn(
            command(ask, few), command([sys.executable, "-c", "pass"], few), rounds=15
        )
        peers = peer_times(command(ask, few), STATUS)
        more, fewer = in_turn(command(ask, many), command(ask, few))
    return [
        Row(
            "status with 1 000 packages, against python3 -c pass", ours, nothing, GOAL, peers=peers
        ),
        Row("status with 5 000 packages, against 1 000", more, fewer, GROWTH_GOAL),
    ]


def project(room: Path, packages: int) -> Path:
    """A repository in the middle of a workflow."""
    root = fill(room, packages).root
    phases = list(WORKFLOWS["feature"])
    active = {
        "type": "feature",
        "phases": phases,
        "current_phase": phases[3],
        "current_phase_index": 3,
    }
    (root / ".isdlc").mkdir()
    (root / ".isdlc/state.json").write_text(json.dumps({"active_workflow": active}))
    return root
