"""`phasegate next` after every agent turn, against an interpreter that does nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.measure import Row, command, in_turn
from bench.peer_asks import NEXT
from bench.peer_runs import peer_times
from phasegate.core.workflow.workflow_phases import WORKFLOWS

GOAL = 2.3


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as room:
        project = Path(room)
        (project / ".isdlc").mkdir()
        phases = list(WORKFLOWS["feature"])
        active = {
            "type": "feature",
            "phases": phases,
            "current_phase": phases[3],
            "current_phase_index": 3,
        }
        (project / ".isdlc/state.json").write_text(json.dumps({"active_workflow": active}))
        hook = [str(Path(sys.executable).with_name("phasegate")), "next"]
        said = subprocess.run(hook, cwd=project, check=True, capture_output=True, text=True).stdout
        assert "Continue to Phase 04 - Design" in said
        ours, nothing = in_turn(
            command(hook, project), command([sys.executable, "-c", "pass"], project), rounds=21
        )
        peers = peer_times(command(hook, project), NEXT)
    return [Row("next, against python3 -c pass", ours, nothing, GOAL, peers=peers)]
