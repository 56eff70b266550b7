"""`phasegate status` as a person sees it: in a pipe, on a terminal, with much, little and broken state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from phasegate.core.workflow.workflow_phases import WORKFLOWS
from phasegate.engine.views.overview import is_config_unchecked
from phasegate.storage.location import Location
from phasegate.storage.reader import StoreReader
from phasegate.storage.row_events import (
    gate_judged_event,
    job_ended_event,
    package_changed_event,
    workflow_changed_event,
)
from phasegate.storage.rows import GateRow, JobRow, PackageRow, WorkflowRow
from phasegate.storage.schema import connect_store
from support.dispatch_project import make_project, package
from support.entry import Done, phasegate
from support.record import FEATURE, TS, make_repository, open_record

ACTIVE = {
    "type": "feature",
    "phases": list(WORKFLOWS["feature"]),
    "current_phase_index": 6,
    "artifact_folder": FEATURE,
}
BLOCKED = PackageRow(
    FEATURE, "WP02", "Check it", "BLOCKED", 2, "File scope violation: a.py", "take it out", TS
)


def status(where: Path, *arguments: str) -> Done:
    return phasegate("status", *arguments, cwd=where)


def on_terminal(where: Path, *arguments: str, columns: int = 120, **variables: str) -> str:
    environ = {**os.environ, "TERM": "xterm", **variables}
    environ.pop("COLUMNS", None)
    terminal = pexpect.spawn(
        sys.executable,
        ["-m", "phasegate", "status", *arguments],
        cwd=str(where),
        env=environ,
        encoding="utf-8",
        dimensions=(50, columns),
        timeout=30,
    )
    terminal.expect(pexpect.EOF)
    return (terminal.before or "").replace("\r\n", "\n")


def record(location: Location, *packages: PackageRow) -> None:
    with open_record(location) as store:
        for row in packages:
            store.append_unconditionally(row.feature, TS, [package_changed_event(row)])


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return make_repository(tmp_path)


def begin(location: Location) -> None:
    (location.root / ".isdlc").mkdir()
    (location.root / ".isdlc/state.json").write_text(json.dumps({"active_workflow": ACTIVE}))


def test_before_anything_there_is_a_way_to_begin(location: Location) -> None:
    done = status(location.root)
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout.startswith("no workflow is active; start one: phasegate run")
    data = json.loads(status(location.root, "--json").stdout)
    nothing = {"all": {"tokens": 0, "cost_usd": 0.0}}
    nothing_else = {
        "waiting": [],
        "others": [],
        "ended": [],
        "spent": nothing,
        "resting": [],
        "hidden": [],
        "board": "",
        "detail": None,
        "overlaps": [],
        "fleet": None,
        "costs": {},
    }
    assert data == {"workflow": None, "features": [], "blockers": [], **nothing_else}


@pytest.mark.demand("W4.a")
def test_workflow_board_and_blockers_are_on_one_page(location: Location) -> None:
    begin(location)
    record(
        location,
        PackageRow(FEATURE, "WP01", "Write it", "DONE"),
        BLOCKED,
        PackageRow("002-b", "WP01", "Else", "DONE"),
    )
    (location.root / "below").mkdir()
    said = status(location.root / "below").stdout
    assert said.startswith(f"feature {FEATURE}: Phase 06 - Implementation\n")
    assert "GATE-05 PASSED" in said
    assert "PLANNED 0  DOING 0  FOR_REVIEW 0  DONE 1" in said
    assert "WP02 is blocked: File scope violation: a.py\n  what to do: take it out\n" in said
    assert "dispatch" not in said
    assert said.endswith("\n002-b: 1 DONE\n")
    assert "\x1b" not in said


@pytest.mark.demand("W4.a")
def test_the_record_tells_of_the_workflow_its_gates_and_its_blocker(location: Location) -> None:
    blocked = WorkflowRow(
        FEATURE,
        "quick",
        "Add a \x1b[31mlogin",
        "main",
        "01-a 06-b 08-c",
        1,
        "blocked",
        2,
        "stuck",
        "help it",
    )
    judged = GateRow(FEATURE, 1, "01-a", 1, "passed", "", TS)
    other = blocked._replace(feature="002-b", stage="completed", position=2)
    with open_record(location) as store:
        store.append_unconditionally(
            FEATURE, TS, [gate_judged_event(judged), workflow_changed_event(blocked)]
        )
        store.append_unconditionally("002-b", TS, [workflow_changed_event(other)])
    said = status(location.root).stdout.splitlines()
    assert said[:9] == [
        f"quick {FEATURE}: Phase 06 - B, round 2",
        "  Add a \\x1b[31mlogin",
        "  [x] Phase 01 - A  GATE-01 PASSED",
        "  [>] Phase 06 - B  BLOCKED",
        "  [ ] Phase 08 - C",
        "  why: stuck",
        "  what to do: help it",
        '  then: phasegate resolve "how", and phasegate run',
        "no work packages are loaded",
    ]
    told = json.loads(status(location.root, "--json").stdout)["workflow"]
    assert (told["stage"], told["reason"], told["phases"][0]["outcome"]) == (
        "blocked",
        "stuck",
        "passed",
    )
    assert status(location.root, "--feature", "002-b").stdout.startswith("quick 002-b: completed")


OVER = WorkflowRow(FEATURE, "quick", "Add it", "release/2", "01-a", 0, "completed", 1)


@pytest.mark.demand("W4.a")
@pytest.mark.parametrize(
    ("over", "where"),
    [
        (OVER._replace(merged="0123456789abcdef"), "merged into release/2 at 0123456789ab"),
        (OVER._replace(base="\x1b[31m", merged="c0ffee"), "merged into \\x1b[31m at c0ffee"),
        (OVER, "merged into release/2"),  # as early versions recorded it
        (OVER._replace(type="test-run"), "not merged: a test-run changes nothing"),
        (OVER._replace(stage="cancelled", reason="no need"), "not merged: cancelled"),
    ],
)
def test_what_has_ended_says_whether_it_was_merged_into_what_and_as_which_commit(
    location: Location, over: WorkflowRow, where: str
) -> None:
    with open_record(location) as store:
        store.append_unconditionally(FEATURE, TS, [workflow_changed_event(over)])
    assert f"  {where}\n" in status(location.root, "--feature", FEATURE).stdout
    assert status(location.root).stdout.splitlines()[1] == f"{FEATURE} is {over.stage}: {where}"
    told = json.loads(status(location.root, "--feature", FEATURE, "--json").stdout)
    assert (told["workflow"]["base"], told["workflow"]["merged"]) == (over.base, over.merged)
    (ended,) = json.loads(status(location.root, "--json").stdout)["ended"]
    assert (ended["feature"], ended["stage"], ended["merged"]) == (FEATURE, over.stage, over.merged)


def test_an_old_view_does_not_revive_a_workflow_that_is_over(location: Location) -> None:
    begin(location)
    assert status(location.root).stdout.startswith(f"feature {FEATURE}: Phase 06")  # the control
    over = WorkflowRow(FEATURE, "feature", "x", "main", "01-a", 0, "cancelled", 1, "no need")
    with open_record(location) as store:
        store.append_unconditionally(FEATURE, TS, [workflow_changed_event(over)])
    assert status(location.root).stdout.startswith("no workflow is active")


@pytest.mark.demand("W4.a")
def test_all_that_waits_for_a_person_is_one_list_with_the_orders_that_are_allowed(
    location: Location,
) -> None:
    blocked = WorkflowRow(
        "002-b", "quick", "Do it", "main", "01-a 06-b", 1, "blocked", 2, "stuck", "help it"
    )
    passed = blocked._replace(feature="003-c", stage="gate-passed", reason="", remediation="")
    stopped = blocked._replace(feature=FEATURE, stage="working", reason="", remediation="")
    record(location, BLOCKED._replace(feature="002-b"), BLOCKED._replace(feature="004-d"))
    with open_record(location) as store:
        for row in (blocked, passed, stopped):
            store.append_unconditionally(row.feature, TS, [workflow_changed_event(row)])
    waiting = json.loads(status(location.root, "--json").stdout)["waiting"]
    assert {(one["feature"], one["package"]): (one["asked"], one["orders"]) for one in waiting} == {
        ("002-b", ""): ("resolve", ["resolve", "back", "cancel"]),
        ("003-c", ""): ("complete", ["run", "back", "complete", "escalate", "cancel"]),
        ("004-d", "WP02"): ("dispatch", ["dispatch"]),
    }
    assert next(one for one in waiting if one["feature"] == "002-b")["reason"] == "stuck"
    said = status(location.root).stdout
    assert said.startswith(
        f"quick {FEATURE}: Phase 06"
    )  # the one that was moved last, and waits for nobody
    assert (
        '  002-b: blocked in 06-b: stuck\n    then: phasegate resolve "how" --feature 002-b\n'
        in said
    )
    assert (
        "  003-c: its last gate has passed in 06-b\n    then: phasegate complete --feature 003-c\n"
        in said
    )
    assert "then: phasegate dispatch WP02 --feature 004-d\n" in said
    assert "also waiting" not in status(location.root, "--feature", FEATURE).stdout
    (only,) = [
        line
        for line in status(location.root, "--feature", "002-b").stdout.splitlines()
        if "then:" in line
    ]
    assert (
        only == '  then: phasegate resolve "how" --feature 002-b, and phasegate run --feature 002-b'
    )


def test_a_blocked_package_outside_of_a_workflow_is_dispatched_again(location: Location) -> None:
    record(location, BLOCKED)
    assert "  then: phasegate dispatch WP02\n" in status(location.root).stdout


@pytest.mark.demand("D14.a")
def test_one_package_is_shown_with_its_jobs(location: Location) -> None:
    job = JobRow(FEATURE, "j1", "WP02", "implement", 1, "claude", TS, TS, "blocked")
    record(location, BLOCKED, BLOCKED._replace(feature="002-b"))
    with open_record(location) as store:
        store.append_unconditionally(FEATURE, TS, [job_ended_event(job)])
    said = status(location.root, "WP02", "--feature", FEATURE).stdout
    assert said.startswith(f"{FEATURE}  WP02  BLOCKED     Check it  File scope violation: a.py\n")
    assert "round 1  implement  claude  blocked" in said
    assert (" ago  round 1" in said, "T" + TS.partition("T")[2] in said) == (True, False)
    (told,) = json.loads(status(location.root, "WP02", "--feature", FEATURE, "--json").stdout)
    assert (told["state"], told["jobs"][0]["agent"]) == ("BLOCKED", "claude")
    assert status(location.root, "WP02").stdout.count("BLOCKED") == 2
    assert status(location.root, "WP9").code == 2


def test_json_holds_everything_the_page_shows(location: Location) -> None:
    begin(location)
    record(location, PackageRow(FEATURE, "WP01", "Tab\there", "DONE"), BLOCKED)
    told = json.loads(status(location.root, "--json").stdout)
    assert told["workflow"]["phases"][6] == {
        "key": "06-implementation",
        "name": "Phase 06 - Implementation",
        "gate": "GATE-06",
        "status": "in_progress",
        "outcome": "",
    }
    assert told["features"][0]["counts"]["BLOCKED"] == 1
    assert told["features"][0]["packages"][0]["title"] == "Tab\there"
    assert [row["id"] for row in told["blockers"]] == ["WP02"]


def test_another_feature_can_be_chosen(location: Location) -> None:
    record(
        location,
        PackageRow(FEATURE, "WP01", "a", "DONE"),
        PackageRow("002-b", "WP01", "b", "DOING"),
    )
    assert "\n002-b\nPLANNED" in status(location.root, "--feature", "002-b").stdout
    done = status(location.root, "--feature", "003-c")
    assert (done.code, f"available: {FEATURE}, 002-b" in done.stderr) == (2, True)


@pytest.mark.demand("X2.g")
def test_a_terminal_shows_the_rail_and_the_graph_and_a_pipe_what_it_always_showed(
    location: Location, tmp_path: Path
) -> None:
    begin(location)
    shown = on_terminal(location.root, NO_COLOR="1")
    assert ("  ● Phase 01" in shown, "[x]" in shown) == (True, False)
    assert "\x1b[32m●\x1b[0m" in on_terminal(location.root)
    assert "[x]" in on_terminal(
        location.root, PYTHONIOENCODING="ascii"
    )  # where it could not be drawn
    assert "[x]" in status(location.root).stdout
    plan = {"WP01": package(), "WP02": package("WP02", ("b.ts",), dependencies=["WP01"])}
    project = make_project(tmp_path / "planned", plan)
    assert "○ WP01 ─▶ ○ WP02" in on_terminal(project.root, NO_COLOR="1")
    assert "─▶" not in status(project.root).stdout


def test_a_terminal_shows_colours_unless_the_person_wants_none(location: Location) -> None:
    begin(location)
    record(location, BLOCKED)
    assert "\x1b[31m" in on_terminal(location.root)
    assert "\x1b" not in on_terminal(location.root, NO_COLOR="1")
    assert "\x1b" not in on_terminal(location.root, TERM="dumb")


def test_a_narrow_terminal_shows_one_column(location: Location) -> None:
    record(
        location, PackageRow(FEATURE, "WP01", "A title that is rather long for it", "DONE"), BLOCKED
    )
    lines = on_terminal(location.root, columns=40, NO_COLOR="1").split("\n")
    at = lines.index("DONE 1")
    assert lines[at + 1] == "  WP01 A title that is rather long fo.."
    assert lines[at + 2] == "BLOCKED 1"


def test_a_terminal_shows_the_first_of_very_many_and_a_pipe_shows_all(location: Location) -> None:
    record(location, *(PackageRow(FEATURE, f"WP{n:02}", "x", "DONE") for n in range(1, 120)))
    assert "and 104 more: phasegate status --all" in on_terminal(location.root)
    assert "WP119 x" in on_terminal(location.root, "--all")
    assert status(location.root).stdout.count(" x\n") == 119
    said = status(location.root).stdout
    assert said.index("WP99 x") < said.index("WP100 x")


def test_texts_of_agents_do_not_steer_the_terminal(location: Location) -> None:
    wild = "\x1b[2J\x1b]0;x\x07\r\nWP09"
    record(location, PackageRow(FEATURE, "WP01", wild, "BLOCKED", 1, wild, wild, TS))
    for arguments in ((), ("WP01",)):
        said = status(location.root, *arguments).stdout
        assert all(line.isprintable() for line in said.split("\n"))
        assert "\\x1b[2J" in said


@pytest.mark.parametrize("state", ["{", '{"active_workflow": {"phases": "x"}}', "[]"])
def test_a_broken_state_file_hides_no_packages(state: str, location: Location) -> None:
    begin(location)
    (location.root / ".isdlc/state.json").write_text(state)
    record(location, BLOCKED)
    done = status(location.root)
    assert (done.code, "WP02 is blocked" in done.stdout) == (0, True)


def test_a_workflow_without_a_name_hides_no_packages(location: Location) -> None:
    """Another tool's state file may not say which feature it is about."""
    begin(location)
    unnamed = {key: value for key, value in ACTIVE.items() if key != "artifact_folder"}
    (location.root / ".isdlc/state.json").write_text(json.dumps({"active_workflow": unnamed}))
    record(location, PackageRow(FEATURE, "WP01", "Write it", "DONE"))
    said = status(location.root).stdout
    assert f"\n{FEATURE}\n" in said
    assert "WP01" in said
    assert "has no work packages" not in said


def test_a_damaged_store_is_said_in_words(location: Location) -> None:
    record(location, BLOCKED)
    location.store_path.write_bytes(b"no store")
    done = status(location.root)
    assert (done.code, "damaged" in done.stderr, done.stdout) == (4, True, "")


def test_outside_of_a_repository_there_is_no_status(tmp_path: Path) -> None:
    done = status(tmp_path)
    assert (done.code, "git init" in done.stderr) == (2, True)


def test_the_plain_question_loads_no_heavy_module(location: Location) -> None:
    record(location, BLOCKED)
    code = "import sys; sys.argv = ['x', 'status']\nfrom phasegate.__main__ import main\nmain()\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=location.root, capture_output=True, text=True
    )
    loaded = {*done.stdout.splitlines()[-1].split()}
    assert not loaded & {
        "click",
        "msgspec",
        "json",
        "subprocess",
        "phasegate.config",
        "phasegate.engine.project.project",
    }


@pytest.mark.parametrize("has_store", [True, False])
def test_a_configuration_that_does_not_load_is_reported(
    location: Location, has_store: bool
) -> None:
    if has_store:
        record(location, BLOCKED)
    path = location.root / "phasegate.toml"
    path.write_text('[agents.mine]\nharness = "command"\ncommand = ["x"]\n')
    fine = status(location.root)
    assert (fine.code, fine.stderr) == (0, ""), "the control"

    path.write_text('[agents.mine]\nharnes = "command"\n')
    for arguments in ((), ("--json",), ("--all",)):
        done = status(location.root, *arguments)
        assert done.code == 0
        assert "`run` will fail: phasegate.toml:2: unknown key `harnes`" in done.stderr
        assert "hint: did you mean `harness`?" in done.stderr
    assert status(location.root).stdout == fine.stdout


def test_a_configuration_older_than_the_last_entry_costs_nothing(location: Location) -> None:
    (location.root / "phasegate.toml").write_text("harnes = 1\n")
    record(location, BLOCKED)
    with StoreReader(connect_store(location.store_path, write=False), location) as reader:
        assert not is_config_unchecked(reader)
        for path in location.data_folder.glob("store.db*"):
            os.utime(path, (1, 1))
        assert is_config_unchecked(reader)


def test_a_missing_store_is_reported(location: Location) -> None:
    begin(location)
    assert status(location.root).code == 0, "the control: another tool wrote the state"
    record(location, BLOCKED)
    for path in location.data_folder.glob("store.db*"):
        path.unlink()

    done = status(location.root)
    refused = phasegate("run", cwd=location.root)
    assert (done.code, done.stdout) == (4, "")
    assert "store.db is missing; it contained" in done.stderr
    assert "restore .phasegate" in done.stderr
    assert done.stderr == refused.stderr
