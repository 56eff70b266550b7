"""`kill -9` at every recorded step of a feature at a forge, by package: nothing there is done twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from phasegate.core.workflow.phase_transitions import Stage
from phasegate.core.workflow.workflow_phases import WORKFLOWS
from phasegate.engine.project.check_record import CHECKS_RECORDED
from support.fake_forge import TOKEN, fake_forge
from support.feature_project import builds, make_feature_project, smooth
from support.feature_run import DESCRIPTION, SLUG
from support.git_project import git

UNTIL = Path(__file__).with_name("feature_until.py")
SETTINGS = """
[merge]
mode = "pull-request"
per = "package"
use_merge_queue = {queue}
[forge]
kind = "{kind}"
url = "{url}"
repository = "team/greet"
token_env = "FORGE_TOKEN"
poll_interval_s = 0.05
"""
POLITELY = builds("WP01", {"run": ["sh", "-c", 'echo "# politely" >> bye.py']}, round=2)


@pytest.mark.demand("X7.b", "X7.i", "W5.a")
@pytest.mark.parametrize(
    ("kind", "when"),
    [
        ("github", "after"),
        pytest.param("github", "before", marks=pytest.mark.long),
        *(
            pytest.param(kind, when, marks=pytest.mark.long)
            for kind in ("gitlab", "gitea")
            for when in ("before", "after")
        ),
    ],
)
def test_a_feature_killed_at_every_recorded_step_publishes_answers_and_merges_everything_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, when: str
) -> None:
    """Two remarks at a package are dealt with, the forge's queue merges; GitHub's and GitLab's are their own."""
    monkeypatch.setenv("FORGE_TOKEN", TOKEN)
    made = make_feature_project(tmp_path)
    with fake_forge(kind, made.root, tmp_path / "forge") as forge:
        settings = made.root / "phasegate.toml"
        settings.write_text(
            settings.read_text() + SETTINGS.format(kind=kind, url=forge.url, queue="true")
        )
        git(made.root, "commit", "-qam", "Use the forge")
        git(forge.bare, "fetch", "-q", str(made.root), "+main:main")
        made.play(POLITELY, *smooth(WORKFLOWS["quick"]))
        assert made.start("quick", DESCRIPTION) == SLUG

        def people() -> None:
            """Two remarks at the first package; then all is approved, and the queue merges what is in it."""
            for pull in [one for one in forge.pulls.values() if one.state == "open"]:
                is_first = pull.branch.endswith("WP01")
                if is_first and not pull.comments:
                    forge.remark(pull.number, "Please do it politely.")
                    forge.remark(pull.number, "And politely again.")
                elif pull.queued:
                    forge.merge_now(pull.number)
                elif not is_first or any("Done in" in one.text for one in pull.comments):
                    forge.approve(pull.number)

        forge.people = [people] * 10_000
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        argv = [sys.executable, str(UNTIL), str(made.root), when, "0/1"]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        took, died = set(told["took"]), set(told["died"])
        assert took <= died, "it died at every step"
        # That it waits is not told any more where the wait was over after its death; a result that was lost before its
        # record is recorded again only where it is still needed.
        kinds = {step.split(": ")[1].split()[0] for step in died - took}
        assert kinds <= {"notice.given", CHECKS_RECORDED}
        for step in ("published", "remarked", "merged", "pull-opened", "completed"):
            assert [one for one in told["died"] if step in one], step
        assert [one.state for one in forge.pulls.values()] == ["merged"] * 3
        comments = [one.text for pull in forge.pulls.values() for one in pull.comments]
        assert len([text for text in comments if "Done in" in text]) == 2
        merges = git(
            forge.bare, "log", "--first-parent", "--merges", "--format=%s", "main"
        ).splitlines()
        assert len(merges) == 1
        of_feature = git(
            forge.bare, "log", "--merges", "--format=%s", "main^2", "^main^1"
        ).splitlines()
        assert {"WP01: Say bye", "WP02: Tell about it"} <= {*of_feature}, of_feature
        assert "# politely" in git(forge.bare, "show", "main:bye.py")
    assert made.feature(SLUG).workflow.stage is Stage.COMPLETED
    assert made.audit_problems() == []
