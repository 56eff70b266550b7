"""The merge into the base by workers: pushed before it is recorded, over nobody's commits, once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phasegate.core.machine.feature_events import Merged
from phasegate.engine.journal.entries import FEATURE_STEP, read_feature_step
from support.feature_run import DESCRIPTION, TYPE
from support.fleet_machines import BRANCH, Fleet
from support.git_project import git
from support.s3_server import S3Server
from support.temporal_server import TemporalServer

RACE = """\
#!/bin/sh
# A person's push gets in between, once.
while read old new ref; do
  if [ "$ref" = refs/heads/main ] && [ ! -e raced ]; then
    touch raced
    env -u GIT_QUARANTINE_PATH git update-ref refs/heads/main refs/people/push
  fi
done
"""
LOSS = """\
#!/bin/sh
# The merge is in force, and nobody hears of it, once.
while read old new ref; do
  if [ "$ref" = refs/heads/main ] && [ ! -e lost ]; then
    touch lost
    kill -9 $PPID
  fi
done
"""


@pytest.mark.demand("X8.p")
def test_a_merge_by_the_fleet_is_made_once_on_top_of_what_people_push_meanwhile(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer, prefix: str
) -> None:
    fleet = Fleet(tmp_path, s3, temporal, prefix)
    worker, person = fleet.machine("worker"), fleet.machine("person")
    (person.root / "theirs.txt").write_text("pushed in between\n")
    git(person.root, "add", "theirs.txt")
    git(person.root, "commit", "-q", "-m", "Theirs")
    theirs = git(person.root, "rev-parse", "HEAD").strip()
    git(person.root, "push", "-q", "origin", "HEAD:refs/people/push")
    git(person.root, "reset", "-q", "--hard", "HEAD~1")
    for name, text in (("pre-receive", RACE), ("post-receive", LOSS)):
        hook = fleet.remote / "hooks" / name
        hook.write_text(text)
        hook.chmod(0o755)
    with worker.worker():
        reached = person.phasegate("run", TYPE, DESCRIPTION, "--fleet", "--json")
        assert (reached.returncode, json.loads(reached.stdout)["stage"]) == (0, "gate-passed"), (
            reached.stderr
        )
        assert git(fleet.remote, "rev-parse", "main").strip() != theirs, (
            "control: nothing is merged without --merge"
        )
        done = person.phasegate("run", "--fleet", "--merge", "--json")
    assert (done.returncode, json.loads(done.stdout)["stage"]) == (0, "completed"), (
        done.stdout + done.stderr
    )
    assert (fleet.remote / "raced").exists()
    assert (fleet.remote / "lost").exists()
    log = git(fleet.remote, "log", "--first-parent", "--format=%s", "main").splitlines()
    assert log == [
        DESCRIPTION,
        "Theirs",
        "Work as a fleet",
        "One package at a time",
        "Begin",
    ]
    assert {"bye.py", "hi.py", "theirs.txt", "CHANGELOG.md"} <= {
        *git(fleet.remote, "ls-tree", "--name-only", "main").split()
    }
    happened = [
        read_feature_step(one.payload) for one in fleet.events() if one.kind == FEATURE_STEP
    ]
    merged = [one.commit for one in happened if isinstance(one, Merged)]
    assert merged == [git(fleet.remote, "rev-parse", "main").strip()]
    assert BRANCH not in git(fleet.remote, "for-each-ref", "--format=%(refname:short)").split(), (
        "it is done with"
    )
