"""The note for a critic on files that earlier commits changed together with the planned ones."""

from __future__ import annotations

from pathlib import Path

from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.steps.project_context import companion_pieces
from support.feature_run import SLUG, make_feature_run

TASKS = "# Tasks\n\n## 2. Logic\n\n- [ ] 2.1 Do it\n  - File: {files}\n  - Spec: FR-A-001\n  - Do: it.\n"


def test_a_critic_sees_the_file_that_the_plan_forgot(tmp_path: Path) -> None:
    run = make_feature_run(tmp_path)
    for number in range(5):
        for name in ("a.js", "a.d.ts"):
            (run.root / name).write_text(f"{number}\n")
        run.git("add", "a.js", "a.d.ts")
        run.git("commit", "-q", "-m", f"Change {number}")
    branch, base = FeatureBranch(run.project, SLUG), run.git("rev-parse", "HEAD").strip()

    [piece] = companion_pieces(branch, TASKS.format(files="a.js"), base)
    assert "\n- a.d.ts: in 5 of the 5 last commits that changed a.js\n" in piece.content
    # The control: nothing was forgotten
    assert not [*companion_pieces(branch, TASKS.format(files="a.js, a.d.ts"), base)]
