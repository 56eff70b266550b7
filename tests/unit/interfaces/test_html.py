"""Templates escape every value; charts put packages and time where a reader expects them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from jinja2 import Environment, UndefinedError

from phasegate.core.workflow.spending import Spending
from phasegate.engine.views.feature import TimelineBar
from phasegate.engine.views.overview import PackageCard
from phasegate.interfaces.html import environment
from phasegate.interfaces.html.charts import (
    TimelineRow,
    build_axis,
    build_gantt,
    build_package_graph,
    no_link,
)
from phasegate.interfaces.html.environment import (
    build_path,
    format_claim,
    format_cost,
    format_duration,
    format_number,
    render_macro,
)
from support.markup_payloads import PAYLOADS, Markup

TEMPLATES = Path(environment.__file__).parent / "templates"


def test_a_value_is_text_whatever_is_in_it() -> None:
    for payload in PAYLOADS:
        page = Markup(render_macro("macros.html", "notice", payload, payload))
        assert (page.text, page.trouble) == (f"{payload} {payload}", [])
    naive = Environment(autoescape=False).from_string("<p title='{{ text }}'>{{ text }}</p>")
    assert Markup(naive.render(text=PAYLOADS[0])).trouble  # the control


def test_characters_that_cannot_be_seen_are_shown() -> None:
    assert "a\\x1b[31mb\\u200bc" in render_macro("macros.html", "notice", "a\x1b[31mb\u200bc")
    assert "a\n\tb" in render_macro("fragments.html", "text", "a\n\tb")


def test_a_value_that_a_page_needs_and_does_not_get_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        environment.render("decisions.html", title="x")


def test_only_the_style_sheet_of_the_report_is_marked_as_safe() -> None:
    marked = [
        f"{path.name}: {line.strip()}"
        for path in TEMPLATES.glob("*.html")
        for line in path.read_text().splitlines()
        if "|safe" in line or "autoescape" in line
    ]
    assert marked == ["report.html: <style>{{ style|safe }}</style>"]


def test_every_attribute_value_is_quoted() -> None:
    for path in TEMPLATES.glob("*.html"):
        assert re.findall(r" [\w:-]+=\{\{", path.read_text()) == [], path.name


def test_a_diff_shows_what_kind_each_line_is() -> None:
    text = "diff --git a b\n--- a\n+++ b\n@@ -1,2 +1,2 @@\n-old <b>\n+new\n same\n"
    page = render_macro("fragments.html", "diff", text)
    assert Markup(page).text == text
    assert [part.partition('"')[0] for part in page.split('class="')[1:]] == (
        ["diff"] + ["file"] * 3 + ["hunk", "removed", "added"]
    )


def test_a_path_is_quoted_part_by_part() -> None:
    assert build_path("a/b", "feature", "x?y#z") == "/at/a%2Fb/feature/x%3Fy%23z"


def test_numbers_are_written_for_people() -> None:
    durations = (3.14159, 42, 600, 7200)
    assert [format_duration(seconds) for seconds in durations] == [
        "3.1 s",
        "42 s",
        "10 min",
        "2.0 h",
    ]
    assert [format_number(0), format_number(1234567)] == ["–", "1 234 567"]
    assert [format_cost(0.0), format_cost(1.005)] == ["–", "$1.00"]


def test_a_graph_has_a_column_for_each_wave_and_no_line_that_others_imply() -> None:
    waits_for = {"WP01": (), "WP02": ("WP01",), "WP03": ("WP01", "WP02"), "WP04": ("WP01", "WP09")}
    cards = [
        PackageCard(
            feature="f",
            id=name,
            title=name,
            state="PLANNED",
            standing="planned",
            worker=None,
            round=1,
            reason="",
            remediation="",
            since="",
            spent=Spending(),
            waits_for=others,
        )
        for name, others in waits_for.items()
    ]
    graph = build_package_graph(cards, no_link)
    columns = {node.card.id: node.x for node in graph.nodes}
    assert columns["WP01"] < columns["WP02"] == columns["WP04"] < columns["WP03"]
    assert len(graph.edges) == 3  # WP01 to WP03 goes through WP02; WP09 is no package
    assert "WP04 waits for WP01" in graph.label


def bar(kind: str, start: int, end: int | None, name: str = "plan") -> TimelineBar:
    started, ended = (
        "" if at is None else datetime.fromtimestamp(at, UTC).isoformat() for at in (start, end)
    )
    return TimelineBar(
        kind=kind,
        name=name,
        phase="p",
        package="",
        round=1,
        agent="a",
        job="j",
        started=started,
        ended=ended,
        outcome="done",
    )


def test_a_long_pause_is_folded_and_time_stays_in_order() -> None:
    axis = build_axis([(0, 100), (100_000, 100_100)])
    assert [idle_s for _, _, idle_s in axis.folds] == [99_900]
    positions = [axis.to_position(at) for at in (0, 50, 100, 100_000, 100_050, 100_100)]
    assert positions == sorted(positions)
    assert (positions[0], positions[-1]) == (0.0, pytest.approx(1.0))
    assert positions[3] - positions[2] < 0.05
    assert build_axis([(0, 100), (110, 200)]).folds == ()  # the control: a short pause is not


def test_a_chart_draws_gates_last_and_a_running_bar_up_to_now() -> None:
    row = TimelineRow("row", (bar("gate", 50, 50), bar("agent", 0, None), bar("step", 40, 50)))
    chart = build_gantt([row], 100.0, lambda job: f"/{job}")
    assert chart is not None
    bars = chart.rows[0].bars
    assert [one.bar.kind for one in bars] == ["step", "agent", "gate"]
    assert (bars[1].duration_s, bars[1].href) == (100.0, "/j")
    assert [label for _, label in chart.ticks] == ["0 s", "20 s", "40 s", "60 s", "80 s", "100 s"]
    assert build_gantt([], 100.0, no_link) is None


def test_a_claim_of_an_agent_is_shown_in_words() -> None:
    claimed = {"done": True, "none": None, "commits": [{"sha": "12ab", "message": "WP01: Do it"}]}
    assert format_claim(claimed) == "done yes, commits sha 12ab, message WP01: Do it"
    assert (format_claim(False), format_claim(["a.py", "b.py"])) == ("no", "a.py, b.py")
