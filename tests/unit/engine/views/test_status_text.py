"""The text of `status`: commands that can be copied, and nothing that a terminal would interpret."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from phasegate.core.display.status import FeatureCard, Worker, build_phase_cards
from phasegate.core.workflow.spending import Spending
from phasegate.engine.views.overview import (
    FeaturePackages,
    FleetFeatureStatus,
    FleetStatus,
    Overview,
    PackageCard,
    PendingDecision,
    RateLimitedAgent,
    UnservedQueue,
)
from phasegate.engine.views.status_text import (
    NO_PACKAGES,
    StatusPage,
    render_overview,
    render_packages,
    render_worktrees,
)
from phasegate.storage.rows import JobRow

KEYS = ["01-requirements", "06-implementation"]
FLEET = FleetStatus(
    at="2026-01-01T00:01:00+00:00",
    bucket="s3://b",
    server="s",
    unknown="",
    features=(),
    unserved=(),
)
EMPTY = Overview(
    workflow=None,
    features=(),
    waiting=(),
    blockers=(),
    others=(),
    ended=(),
    spent={"all": Spending()},
    resting=(),
)


def feature(slug: str, standing: str = "working", stage: str = "working") -> FeatureCard:
    return FeatureCard(
        slug,
        "feature",
        standing=standing,
        stage=stage,
        phase=KEYS[1],
        phases=build_phase_cards(KEYS, 1, stage, {}),
        base="main",
    )


def package(id_: str = "WP01", state: str = "PLANNED", slug: str = "001-a") -> PackageCard:
    return PackageCard(
        feature=slug,
        id=id_,
        title="Do it",
        state=state,
        standing="planned",
        worker=None,
        round=1,
        reason="",
        remediation="",
        since="",
        spent=Spending(),
    )


def decision(slug: str, asked: str, package_id: str = "", question: str = "") -> PendingDecision:
    return PendingDecision(
        feature=slug,
        package=package_id,
        phase="",
        asked=asked,
        reason="why",
        remediation="",
        orders=(asked,),
        question=question,
    )


def test_without_anything_it_says_how_to_start() -> None:
    text = render_overview(EMPTY)
    assert text.startswith("no workflow is active; start one: phasegate run")
    assert NO_PACKAGES in text
    assert "spent" not in text


def test_a_decision_of_another_feature_has_its_command_and_the_shown_one_reports_its_own() -> None:
    overview = EMPTY._replace(
        workflow=feature("001-a"),
        features=(FeaturePackages("001-a", {}, (package(),)),),
        waiting=(
            decision("001-a", "resolve"),
            decision("002-b", "resolve"),
            decision("003-c", "dispatch", "WP02"),
            decision("001-a", "answer", "WP01", "q1"),
        ),
    )
    commands = [
        line.strip() for line in render_overview(overview).splitlines() if "--feature" in line
    ]
    assert commands == [
        'then: phasegate resolve "how" --feature 002-b',
        "then: phasegate dispatch WP02 --feature 003-c",
        'then: phasegate answer q1 "..." --feature 001-a',
    ]
    assert "also waiting" not in render_overview(overview, chosen=True)
    # `run` alone would change nothing: the remedy is what has to be done
    remedy = "phasegate scope allow WP01 a.py --reason y --feature 002 && phasegate run"
    to_allow = decision("002-b", "resolve")._replace(remediation=remedy)
    shown = render_overview(overview._replace(waiting=(to_allow,)))
    assert f"    what to do: {remedy}\n" in shown
    assert "then: phasegate run --feature 002" not in shown


def test_in_a_fleet_every_command_names_the_fleet() -> None:
    overview = EMPTY._replace(
        workflow=feature("001-a"),
        others=(feature("002-b", "stopped"),),
        waiting=(decision("003-c", "complete"),),
        fleet=FLEET,
    )
    commands = [line for line in render_overview(overview).splitlines() if "phasegate " in line]
    assert len(commands) == 3
    assert [line for line in commands if "--fleet" not in line] == []
    here = render_overview(overview._replace(fleet=None))
    assert "--fleet" not in here
    assert "then: phasegate complete --feature 003-c" in here


def test_a_stopped_feature_beside_the_shown_one_can_be_continued_and_a_waiting_one_is_no_line() -> (
    None
):
    overview = EMPTY._replace(
        workflow=feature("001-a"),
        others=(
            feature("002-b", "stopped", "gate-failed"),
            feature("003-c", "working"),
            feature("004-d", "waiting", "blocked"),
        ),
    )
    beside = [line for line in render_overview(overview).splitlines() if line.startswith("also")]
    assert beside == [
        "also stopped: 002-b, 06-implementation, gate-failed; "
        "continue: phasegate run --feature 002-b",
        "also running: 003-c, 06-implementation",
    ]


def test_a_terminal_gets_a_table_of_features_with_those_that_wait_first() -> None:
    overview = EMPTY._replace(
        workflow=feature("001-a"),
        others=(feature("002-b", "waiting", "blocked"), feature("003-c", "stopped")),
        ended=(feature("000-z", "ended", "completed"),),
        waiting=(decision("002-b", "resolve"),),
        costs={"002-b": 1.5},
    )
    shown = render_overview(overview, StatusPage(width=100, is_long=False)).splitlines()
    assert [line.split() for line in shown[:5]] == [
        ["FEATURE", "STATE", "PHASE", "AGE", "COST"],
        ["002-b", "waiting", "for", "you", "2/2", "-", "1.50", "USD"],
        ["001-a", "running", "2/2", "-", "-"],
        ["003-c", "stopped", "2/2", "-", "-"],
        ["1", "ended"],
    ]
    narrow = render_overview(overview, StatusPage(width=59, is_long=False)).splitlines()
    assert [len(line.split()) for line in narrow[:5]] == [len(line.split()) for line in shown[:5]]
    assert "FEATURE" not in render_overview(overview)  # a pipe gets what it always got
    many = overview._replace(others=tuple(feature(f"{n:03}-x") for n in range(2, 200)))
    assert "and 184 more: phasegate status --all" in render_overview(
        many, StatusPage(width=100, is_long=False)
    )


def test_a_terminal_gets_lines_wrapped_by_words_and_the_age_of_a_process() -> None:
    card = feature("001-a", "working")._replace(
        worker=Worker(7, "run 001-a", "2026-01-01T00:00:00Z"),
        reason="the run has failed: " + "several words " * 12,
    )
    text = render_overview(EMPTY._replace(workflow=card), StatusPage(width=60, is_long=False))
    assert max(map(len, text.splitlines())) <= 60
    assert "process 7 (run 001-a) " in text
    assert "days ago" in text
    assert "several wo\n" not in text


def test_the_total_is_shown_only_if_it_differs_from_the_feature() -> None:
    one, all_ = Spending(10, 1.0), Spending(30, 2.0)
    both = render_overview(EMPTY._replace(spent={"feature": one, "all": all_}))
    assert "spent: 1.00 USD, 10 tokens; all features: 2.00 USD, 30 tokens" in both
    alone = render_overview(EMPTY._replace(spent={"feature": one, "all": one}))
    assert "all features" not in alone


def test_no_text_of_an_agent_reaches_the_terminal_unescaped() -> None:
    evil = "\x1b[2J"
    card = package()._replace(
        title=evil, reason=evil, remediation=evil, state=f"BLOCKED{evil}", tasks={"1.1": evil}
    )
    overview = EMPTY._replace(
        workflow=feature("001-a"),
        features=(FeaturePackages("001-a", {}, (card,)),),
        waiting=(decision("002-b", "answer", question="q")._replace(reason=evil, options=(evil,)),),
        hidden=(evil,),
        resting=(RateLimitedAgent(evil, evil),),
        board=evil,
    )
    for text in (
        render_overview(overview),
        render_packages([card], {}),
        render_worktrees([card], ".worktrees", show_all=True),
    ):
        assert "\\x1b" in text
        assert all(line.isprintable() for line in text.splitlines())


def test_a_job_without_an_end_runs_unless_nobody_works_on_its_package() -> None:
    job = JobRow("001-a", "j", "WP01", "implement", 1, "codex", "2026-01-01T00:00:00Z")
    card = package(state="DOING")._replace(jobs=(job,), standing="working")
    card = card._replace(worker=Worker(12, "run", "today"))
    assert "codex  running" in render_packages([card], {})
    stopped = render_packages([card._replace(standing="stopped", worker=None)], {})
    assert "codex  stopped" in stopped
    assert "no process is running" in stopped
    ended = card._replace(jobs=(job._replace(outcome="done"),))
    assert "codex  done" in render_packages([ended], {})
    assert "codex  NEEDS_CHANGES" in render_packages([ended], {job.id: "NEEDS_CHANGES"})


def test_a_fleet_tells_what_it_knows_and_what_it_does_not() -> None:
    fleet = FLEET._replace(
        unknown="no answer",
        features=(
            FleetFeatureStatus(
                "001-a", "2026-01-01T00:00:30+00:00", "w1", "2026-01-01T00:00:50+00:00"
            ),
            FleetFeatureStatus("002-b", "", why="lost"),
        ),
        unserved=(UnservedQueue("q", "noon", ("003-c",), "they are full"),),
    )
    lines = render_overview(EMPTY._replace(fleet=fleet)).splitlines()
    assert lines[-5:] == [
        "fleet: s3://b, server s",
        "  001-a: last recorded 30 s ago; worker w1, last heartbeat 10 s ago",
        "  002-b: record unreadable; stopped: lost",
        "  no worker for queue q (since noon; 003-c): they are full",
        "  workers and queues are unknown: no answer",
    ]
    paused = render_overview(EMPTY._replace(fleet=FLEET._replace(paused="noon"))).splitlines()
    assert paused[-1] == "  paused since noon: nothing new starts; phasegate fleet resume"


def test_a_list_of_worktrees_says_why_it_is_empty() -> None:
    assert render_worktrees([], ".worktrees", show_all=True) == NO_PACKAGES
    assert render_worktrees([], ".worktrees", show_all=False) == "no package is ready"
    assert render_worktrees([package()], "w", show_all=False).endswith("  w/001-a-WP01")


def test_times_on_a_terminal_are_short_and_those_in_a_pipe_exact() -> None:
    until = datetime.now(UTC).replace(microsecond=0).astimezone()
    later = until + timedelta(days=2)
    overview = EMPTY._replace(
        resting=tuple(
            RateLimitedAgent(name, f"{one:%Y-%m-%dT%H:%M:%S%z}")
            for name, one in (("now", until), ("later", later))
        )
    )
    shown = render_overview(overview, StatusPage(width=100, is_long=False))
    assert f"now is rate-limited until {until:%H:%M}\n" in shown
    assert f"later is rate-limited until {later:%Y-%m-%d %H:%M}\n" in shown
    assert f"now is rate-limited until {until:%Y-%m-%dT%H:%M:%S%z}\n" in render_overview(overview)


def test_commands_on_a_terminal_name_features_by_their_numbers() -> None:
    waiting = tuple(
        PendingDecision(slug, "", KEYS[1], "resolve", "why", "", ("resolve",))
        for slug in ("002-b", "003-c", "003-d")
    )
    others = tuple(feature(one.feature, "waiting", "blocked") for one in waiting)
    overview = EMPTY._replace(workflow=feature("001-a"), others=others, waiting=waiting)
    terminal = StatusPage(width=200, is_long=False)
    shown = render_overview(overview, terminal)
    assert '    then: phasegate resolve "how" --feature 002\n' in shown
    assert "--feature 003-c\n" in shown, "two features have this number"
    assert "--feature 002-b\n" in render_overview(overview), "a pipe gets the whole name"
    fleet = render_overview(overview._replace(fleet=FLEET), terminal)
    assert "--feature 002-b --fleet\n" in fleet
