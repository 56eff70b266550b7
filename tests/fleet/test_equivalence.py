"""Every kind of feature gives the same events and the same trees by the local driver and by a fleet."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest

from phasegate.core.workflow.workflow_phases import DESCRIPTION_NOUNS, WORKFLOWS
from phasegate.engine.journal.entries import FEATURE_STEP
from phasegate.engine.notify.notifier import USER_NOTIFIED
from phasegate.engine.project.project import open_project
from phasegate.sandbox.probe import probe_level
from phasegate.sandbox.request import SandboxLevel
from phasegate.storage.bucket.journal import BucketStore
from phasegate.storage.bucket.verify_copy import verify_bucket
from phasegate.storage.location import Location
from phasegate.storage.reader import open_store_reader
from phasegate.storage.rows import RecordedEvent
from support.alike_runs import REUSE, alike, alike_side_by_side, without_reuse
from support.dispatch_project import turn
from support.feature_project import (
    BUILDS_WRONGLY,
    DESCRIPTION,
    PASS,
    STRICT,
    Turn,
    builds,
    document,
    file,
    make_feature_project,
    says,
    smooth,
)
from support.fleet_machines import Machine
from support.git_project import git
from support.s3_server import BUCKET, SECRET, S3Server
from support.temporal_server import TemporalServer

ACTOR = '[agents.actor]\nharness = "scripted"\nscenario = "../scenario.json"\ntimeout_s = 120\n'
Compared = Callable[[list[RecordedEvent]], Iterator[tuple[str, Any]]]
SERIAL = "[run]\nparallel = 1\n"
REPAIRS = "(a person repairs the feature's branch)"


class Story(NamedTuple):
    """A feature: what its agents do, and what a person orders, each with the exit status that it is to have."""

    type: str
    orders: tuple[tuple[int, tuple[str, ...]], ...]
    turns: tuple[Turn, ...] = ()
    config: str = SERIAL
    files: tuple[tuple[str, str], ...] = ()

    def scenario(self) -> list[Turn]:
        return [*self.turns, *smooth(WORKFLOWS.get(self.type, ()))]


def begun(type_: str, *more: str) -> tuple[str, ...]:
    return (
        "run",
        type_,
        *(() if DESCRIPTION_NOUNS.get(type_, "") is None else (DESCRIPTION,)),
        *more,
    )


def to_its_merge(type_: str, *turns: Turn, config: str = SERIAL) -> Story:
    return Story(type_, ((0, begun(type_)), (0, ("run", "--merge"))), turns, config)


SAID = ("It says nothing about strangers.", "A remark is missing.")
REVISION = says("challenge", "NEEDS_REVISION", SAID[0], round=1)
CHANGE = says("review", "NEEDS_CHANGES", SAID[1], workflow_phase="08-code-review", round=1)
NO_GOOD = says(
    "review", "MAJOR_ISSUES", "This is the wrong thing.", workflow_phase="08-code-review"
)
LATER = SERIAL + "".join(
    f'[phases."{key}"]\ncommands = ["{command}"]\n'
    for key, command in (
        ("12-remote-build", "true"),
        ("14-production", "test"),
        ("15-operations", "true"),
    )
)
OWN = """
[workflows.docs]
phases = ["04-design", "06-implementation", "X1-style-check"]
noun = "manual"
[phases."X1-style-check"]
commands = ["lint"]
required_artifacts = ["STYLE.md"]
[phases."04-design"]
required_artifacts = ["plan.md"]
"""
DESIGNS = turn("plan", document("plan.md"), document("tasks.md"), PASS, workflow_phase="04-design")
OUT_OF_SCOPE = builds("WP01", file("README.md", "Mine now.\n"))

STORIES = {
    "quick, side by side": to_its_merge("quick", REVISION, CHANGE, config=""),
    "test-run, a blocker repaired by a person": Story(
        "test-run",
        (
            (1, begun("test-run")),
            (0, (REPAIRS,)),
            (0, ("resolve", "the test is mended")),
            (0, ("run",)),
        ),
        config=f'{SERIAL}[notify]\ncommand = ["true"]\n',
        files=(("greet.py", "def greet(name):\n    return 'Hello'\n"),),
    ),
    "feature, each check fails once": to_its_merge(
        "feature",
        {**REVISION, "workflow_phase": "01-requirements"},
        CHANGE,
        *BUILDS_WRONGLY,
        config=STRICT + SERIAL,
    ),
    "fix": to_its_merge("fix", {**REVISION, "workflow_phase": "02-tracing"}),
    "test-generate": to_its_merge("test-generate"),
    "full-lifecycle, a person's word": Story(
        "full-lifecycle",
        (
            (1, begun("full-lifecycle")),
            (0, ("resolve", "deployed to staging and looked at it")),
            (0, ("run", "--merge")),
        ),
        config=LATER,
    ),
    "upgrade": to_its_merge("upgrade"),
    "a workflow of one's own": to_its_merge("docs", DESIGNS, config=OWN + SERIAL),
    "a blocked package, and back": Story(
        "quick",
        ((1, begun("quick")), (0, ("back", "01", "think again")), (1, ("run",))),
        (OUT_OF_SCOPE,),
    ),
    "cancelled at a blocker": Story(
        "quick",
        ((1, begun("quick")), (0, ("cancel", "--reason", "changed our mind"))),
        (NO_GOOD,),
    ),
}
SAMPLE = {"quick, side by side", "test-run, a blocker repaired by a person"}


class Outcome(NamedTuple):
    """What a feature left: its events, and the files and commits of every branch."""

    events: list[RecordedEvent]
    trees: dict[str, dict[str, str]]
    commits: dict[str, Counter[str]]


def play(story: Story, machine: Machine, *by: str) -> None:
    for expected, words in story.orders:
        if words == (REPAIRS,):
            repair(machine, to_remote=bool(by))
            continue
        done = machine.phasegate(*words, *by)
        assert done.returncode == expected, (words, by, done.stdout, done.stderr)


def repair(machine: Machine, *, to_remote: bool) -> None:
    git(machine.root, "fetch", "-q", "origin")
    (branch,) = set(
        re.findall(r"feat/\S+", git(machine.root, "branch", "-a", "--format=%(refname)"))
    )
    git(machine.root, "checkout", "-q", branch)
    (machine.root / "greet.py").write_text("def greet(name):\n    return f'Hello, {name}'\n")
    git(machine.root, "commit", "-q", "-am", "Mend it")
    if to_remote:
        git(machine.root, "push", "-q", "origin", branch)
    git(machine.root, "checkout", "-q", "main")


def outcome(events: list[RecordedEvent], *repositories: Path) -> Outcome:
    """A branch is that of the last repository that has it."""
    trees, commits, places = {}, {}, dict[str, Path]()
    for repository in repositories:
        heads = git(repository, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()
        places |= dict.fromkeys(heads, repository)
    for head, place in places.items():
        names = git(place, "ls-tree", "-r", "--name-only", head).splitlines()
        trees[head] = {
            name: REUSE.sub("", git(place, "show", f"{head}:{name}")).replace(events[0].ts, "BEGUN")
            for name in names
        }
        commits[head] = Counter(git(place, "log", "--format=%an: %s", head).splitlines())
    return Outcome(events, trees, commits)


@pytest.mark.demand("X8.g")
@pytest.mark.parametrize(
    "story",
    [
        pytest.param(one, id=name, marks=[] if name in SAMPLE else pytest.mark.long)
        for name, one in STORIES.items()
    ],
)
def test_a_fleet_gives_the_events_and_trees_of_the_local_driver(
    story: Story, tmp_path: Path, s3: S3Server, temporal: TemporalServer, prefix: str
) -> None:
    origin = make_feature_project(tmp_path / "origin", config=story.config, agents=ACTOR)
    for name, text in story.files:
        (origin.root / name).write_text(text)
        origin.git("commit", "-q", "-am", "Begin like this")
    remote = tmp_path / "remote.git"
    git(tmp_path, "clone", "-q", "--bare", str(origin.root), "remote.git")
    local, worker, person = (
        Machine(tmp_path / name, remote) for name in ("local", "worker", "person")
    )
    for machine in (local, worker, person):
        (machine.folder / "scenario.json").write_text(json.dumps(story.scenario()))
    for machine in (worker, person):
        machine.environment |= fleet_settings(s3, temporal, prefix)
    play(story, local)
    with worker.worker():
        play(story, person, "--fleet")
    reader = open_store_reader(open_project(local.root).location)
    assert reader is not None
    with (
        reader,
        BucketStore(
            s3.patient_bucket(prefix), Location(Path(), Path(), Path()), lambda: ""
        ) as record,
    ):
        (slug,) = reader.features()
        here, there = (
            outcome([*reader.events(slug)], local.root),
            outcome([*record.events(slug)], worker.root, remote),
        )
    if story.config == "":
        assert is_side_by_side(here.events)
        assert is_side_by_side(there.events)
    expect_same(told(story, there.events, worker.root), told(story, here.events, local.root))
    assert any(one.kind == USER_NOTIFIED for one in there.events) is ("[notify]" in story.config), (
        "people are told"
    )
    assert there.trees == here.trees
    assert there.commits == here.commits
    report = verify_bucket(s3.bucket(prefix), None)
    assert (report.ok, report.entries) == (True, len(there.events)), report
    assert not (worker.root / ".phasegate/store.db").exists(), "control: no store was used"
    history = temporal.kept()
    assert slug.encode() in history, "control"
    assert SECRET.encode() not in history
    for said in SAID:
        assert said.encode() not in history, "what agents say is in the record, not in the history"


def told(story: Story, events: list[RecordedEvent], root: Path) -> list[tuple[str, Any]]:
    """Return what happened, without ids and times; side by side also without who was faster.

    A worker runs checks whose results the local driver finds in its journal.
    """
    compared = alike if "parallel = 1" in story.config else alike_side_by_side
    return [*compared(without_reuse(events), root)]


def expect_same(there: list[tuple[str, Any]], here: list[tuple[str, Any]]) -> None:
    """The first difference is shown, not all of both."""
    differ = (
        number for number, pair in enumerate(zip(there, here, strict=False)) if pair[0] != pair[1]
    )
    for number in differ:
        assert there[number] == here[number], number
    assert len(there) == len(here) > 0


def is_side_by_side(events: list[RecordedEvent]) -> bool:
    """Whether both packages of the plan were begun before one ended."""
    said = [json.loads(one.payload)["event"]["event"] for one in events if one.kind == FEATURE_STEP]
    return said.index("package-started") + 1 == said.index(
        "package-started", said.index("package-started") + 1
    )


def entry(kind: str, fields: str, second: int = 0) -> RecordedEvent:
    return RecordedEvent(0, "001-x", 0, f"2026-01-01T00:00:{second:02}.000Z", kind, fields.encode())


def a_small_story(first: UUID, second: UUID, took: int) -> list[RecordedEvent]:
    return [
        entry("workflow.happened", '{"event":{"event":"started"}}', took),
        entry("job.started", f'{{"id":"{first}","wp":"WP01","started":"{took}"}}'),
        entry("job.started", f'{{"id":"{second}","wp":"WP02"}}'),
        entry(
            "package.happened", f'{{"package":"WP01","event":{{"job":"{first}","verdict":"PASS"}}}}'
        ),
        entry(
            "checks.ran",
            f'[["2026-01-01T00:00:{took:02}.000Z",{{"duration_ms":{took},"exit_code":0}}]]',
        ),
        entry(
            "package.happened",
            f'{{"package":"WP02","event":{{"job":"{second}","verdict":"PASS"}}}}',
        ),
        entry("job.prompted", f'{{"job":"{first}"}}'),
        entry("job.prompted", f'{{"job":"{second}"}}'),
    ]


@pytest.mark.parametrize("compared", [alike, alike_side_by_side])
def test_the_comparison_finds_every_changed_lost_doubled_or_exchanged_event(
    compared: Compared,
) -> None:
    one, other = uuid4(), uuid4()
    story = a_small_story(one, other, 3)

    def is_same(changed: list[RecordedEvent]) -> bool:
        return [*compared(story)] == [*compared(changed)]

    assert is_same(a_small_story(uuid4(), uuid4(), 17)), "control: ids and times do not count"
    for number, event in enumerate(story):
        assert not is_same([*story[:number], *story[number + 1 :]])
        assert not is_same([*story[: number + 1], event, *story[number + 1 :]])
    for old, new in (
        ("PASS", "FAIL"),
        ('"exit_code":0', '"exit_code":1'),
        (f'"job":"{one}"', f'"job":"{other}"'),
    ):
        changed = [
            event._replace(payload=event.payload.replace(old.encode(), new.encode()))
            for event in story
        ]
        assert changed != story
        assert not is_same(changed)
    assert not is_same([story[0], story[3], story[1], story[2], *story[4:]]), (
        "within a package the order counts"
    )
    for swapped in (
        [story[0], story[2], story[1], *story[3:]],
        [*story[:-2], story[-1], story[-2]],
    ):
        assert is_same(swapped) is (compared is alike_side_by_side), (
            "between packages it does not, side by side"
        )


def a_check(findings: str, fields: str) -> list[RecordedEvent]:
    ran = json.dumps({"event": {"event": "ran", "findings": findings}})
    return [
        entry("workflow.happened", ran),
        entry("checks.ran", f'[["",{{"fields":{{{fields}"outcome":"passed"}}}}]]'),
    ]


def test_a_recorded_result_counts_as_one_that_was_run_and_another_result_does_not() -> None:
    findings = (
        "- setup: not asked for - disabled by configuration\n"
        "- test: passed - 1 test ran\n  - whole output: kept in .phasegate/checks/001-x-07-testing\n"
    )
    reused = findings.replace(
        "disabled by configuration", "not needed: the results of this tree are recorded"
    ).replace("07-testing", "11-local-testing")
    run = a_check(findings, '"exit_code":0,')
    recorded = a_check(reused, '"exit_code":0,"recorded":true,')

    assert [*alike(recorded)] != [*alike(run)], "control"
    assert [*alike(without_reuse(recorded))] == [*alike(without_reuse(run))]
    for other in (
        a_check(reused, '"exit_code":1,"recorded":true,'),
        a_check(reused.replace("1 test ran", "2 tests ran"), '"exit_code":0,"recorded":true,'),
        a_check(reused.replace("not asked for", "failed"), '"exit_code":0,"recorded":true,'),
    ):
        assert [*alike(without_reuse(other))] != [*alike(without_reuse(run))]


def fleet_settings(s3: S3Server, temporal: TemporalServer, prefix: str) -> dict[str, str]:
    """By variables: the tree has the same settings as that of the local driver."""
    settings = {
        "STORAGE__URL": f"s3://{BUCKET}/{prefix}",
        "STORAGE__ENDPOINT": s3.endpoint,
        "FLEET__ADDRESS": temporal.address,
    }
    if not probe_level(SandboxLevel.WORKTREE).is_supported:  # else no worker would offer an agent
        settings["SANDBOX"] = "none"
    return {f"PHASEGATE_{name}": value for name, value in settings.items()}
