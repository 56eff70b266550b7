"""`phasegate next` and `block check`, row by row of the specifications' tables, to the byte (N1 to N12)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.entry import phasegate
from support.published_expressions import ITEM, PROMPT_BLOCK, STATUS_BLOCK

# Phase key: its display name, its noun after a passed gate, the review that its own agent suggests.
PHASES = {
    "00-quick-scan": ("Phase 00 - Quick Scan", "quick scan", "Review scope estimate"),
    "01-requirements": ("Phase 01 - Requirements", "requirements", "Review requirements documents"),
    "02-impact-analysis": (
        "Phase 02 - Impact Analysis",
        "impact analysis",
        "Review impact analysis report",
    ),
    "02-tracing": ("Phase 02 - Tracing", "trace analysis", "Review trace analysis report"),
    "03-architecture": ("Phase 03 - Architecture", "architecture", "Review architecture and ADRs"),
    "04-design": ("Phase 04 - Design", "design", "Review design specifications"),
    "05-test-strategy": (
        "Phase 05 - Test Strategy",
        "test strategy",
        "Review test strategy and test cases",
    ),
    "06-implementation": (
        "Phase 06 - Implementation",
        "implementation",
        "Review implementation and test results",
    ),
    "07-testing": ("Phase 07 - Testing", "integration test", "Review integration test report"),
    "08-code-review": ("Phase 08 - Code Review", "code review", "Review code review report"),
    "09-validation": (
        "Phase 09 - Validation",
        "security validation",
        "Review security scan results",
    ),
    "10-cicd": ("Phase 10 - Cicd", "CI/CD pipeline", "Review pipeline configuration"),
    "11-local-testing": (
        "Phase 11 - Local Testing",
        "local testing",
        "Review build and health check results",
    ),
    "12-remote-build": (
        "Phase 12 - Remote Build",
        "remote build",
        "Review remote deployment status",
    ),
    "13-test-deploy": (
        "Phase 13 - Test Deploy",
        "staging deployment",
        "Review staging deployment logs",
    ),
    "14-production": ("Phase 14 - Production", "release", "Review release notes"),
    "15-operations": ("Phase 15 - Operations", "operations", "Review monitoring configuration"),
    "16-upgrade-plan": (
        "Phase 16 - Upgrade Plan",
        "upgrade plan",
        "Review upgrade analysis and migration plan",
    ),
    "16-upgrade-execute": (
        "Phase 16 - Upgrade Execute",
        "upgrade execution",
        "Review upgrade execution log",
    ),
    # Without a row in the tables: named after the key.
    "R1-behavior-extraction": (
        *("Phase R1 - Behavior Extraction", "behavior extraction"),
        "Review behavior extraction artifacts",
    ),
}
# Workflow type: what is described at its start, and the numbers of its phases.
TYPES = {
    "feature": ("feature", "00 01 02-i 03 04 05 06 11 07 10 08"),
    "fix": ("bug", "01 02-t 05 06 11 07 10 08"),
    "test-run": (None, "11 07"),
    "test-generate": (None, "05 06 11 07 08"),
    "full-lifecycle": ("project", "01 03 04 05 06 11 07 08 09 10 12 13 14 15"),
    "upgrade": ("upgrade target", "16-upgrade-p 16-upgrade-e 08"),
    "quick": ("feature", "01 06 08"),
    "our-own": ("feature", "R1 06"),
}
KEYS = {
    type_: [
        next(key for key in PHASES if key.startswith(beginning)) for beginning in numbers.split()
    ]
    for type_, (_, numbers) in TYPES.items()
}
EVERY_PLACE = [(type_, index) for type_, keys in KEYS.items() for index in range(len(keys))]
EVENTS = (
    "workflow-initialized",
    "gate-passed",
    "gate-failed",
    "blocker",
    "workflow-completed",
    "workflow-cancelled",
)
FENCES = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
Next = Callable[..., str]


def block(*items: str) -> str:
    lines = "".join(f"  [{number}] {item}\n" for number, item in enumerate(items, 1))
    return f"---\nSUGGESTED NEXT STEPS:\n{lines}---\n"


FALLBACK = block("Show project status", "Start a new workflow")


def active(type_: str, index: int, **changes: object) -> dict[str, Any]:
    keys = KEYS[type_]
    return {
        "type": type_,
        "phases": keys,
        "current_phase": keys[index],
        "current_phase_index": index,
        "artifact_folder": "REQ-0003-suggested-prompts",
        "phase_status": dict.fromkeys(keys, "pending"),
        **changes,
    }


@pytest.fixture
def said(tmp_path: Path) -> Next:
    """`said(workflow, *arguments)`: the bytes that `phasegate next` writes with this workflow in the state file."""
    (tmp_path / ".isdlc").mkdir()

    def next_(workflow: object, *arguments: str) -> str:
        (tmp_path / ".isdlc/state.json").write_text(json.dumps({"active_workflow": workflow}))
        done = phasegate("next", *arguments, cwd=tmp_path)
        assert (done.code, done.stderr) == (0, "")
        return done.stdout

    return next_


def everything(said: Next) -> Iterator[tuple[str, str]]:
    """Every block of every workflow at every position, with the event it is for; `agent` for one of a phase."""
    for type_, index in EVERY_PLACE:
        workflow = active(type_, index)
        yield from ((event, text) for event in EVENTS if (text := said(workflow, "--event", event)))
        yield "agent", said(workflow)
        yield from (("agent", said(workflow, "--phase", key)) for key in KEYS[type_])
    yield "discover", said(None, "--phase", "discover")
    yield "fallback", said(None, "--phase", "04-design")


@pytest.mark.demand(
    "N5.a", "N5.b", "N5.d", "N6.a", "N6.b", "N8.g", "N8.h", "N9.a", "N9.b", "N9.c", "N9.d", "N9.e"
)
@pytest.mark.parametrize("type_", TYPES)
def test_a_phase_agent_offers_what_follows_its_own_place_and_its_own_review(
    said: Next, type_: str
) -> None:
    keys = KEYS[type_]
    for index, key in enumerate(keys):
        last = index + 1 == len(keys)
        first = (
            "Complete workflow and merge to main"
            if last
            else f"Continue to {PHASES[keys[index + 1]][0]}"
        )
        due = block(first, PHASES[key][2], "Show workflow status")
        assert said(active(type_, index)) == due
        for current in range(len(keys)):
            assert said(active(type_, current), "--phase", key) == due, (
                "its own place counts, not the current one"
            )


@pytest.mark.demand("N9.b", "N9.c", "N9.d", "N9.e", "N5.a", "N5.b", "N5.c", "N5.d", "N8.h", "N7.c")
def test_every_row_of_the_tables_is_said_to_the_byte(said: Next) -> None:
    for key, (name, noun, review) in PHASES.items():
        before = {"phases": ["00-x", key], "current_phase_index": 0}
        assert said(before) == block(
            f"Continue to {name}", "Review x artifacts", "Show workflow status"
        )
        here = {"phases": [key, "discovery"], "current_phase_index": 0}
        then = "Continue to Phase discovery"
        assert said(here) == block(then, review, "Show workflow status")
        assert said(here, "--event", "gate-passed") == block(
            then, f"Review {noun} artifacts", "Show workflow status"
        )


@pytest.mark.demand(
    "N4.f", "N4.g", "N6.a", "N6.b", "N7.a", "N7.b", "N7.c", "N7.d", "N7.e", "N7.f", "N7.g", "N8.i"
)
@pytest.mark.parametrize(("type_", "index"), EVERY_PLACE)
def test_every_emission_point_has_its_text(said: Next, type_: str, index: int) -> None:
    workflow, (noun, _), keys = active(type_, index), TYPES[type_], KEYS[type_]
    start = block(
        f"Describe your {noun} to begin {PHASES[keys[0]][0]}",
        "Show workflow phases",
        "Show workflow status",
    )
    passed = ("Complete workflow and merge to main", "Review all workflow artifacts")
    if index + 1 < len(keys):
        passed = (
            f"Continue to {PHASES[keys[index + 1]][0]}",
            f"Review {PHASES[keys[index]][1]} artifacts",
        )
    texts = {
        "workflow-initialized": start if noun else "",
        "gate-passed": block(*passed, "Show workflow status"),
        "gate-failed": block(
            "Review gate failure details", "Retry gate check", "Escalate to human"
        ),
        "blocker": block("Resolve blocker and retry", "Cancel workflow", "Show workflow status"),
        "workflow-completed": block("Start a new feature", "Run tests", "View project status"),
        "workflow-cancelled": block("Start a new feature", "View project status"),
    }
    assert {event: said(workflow, "--event", event) for event in texts} == texts
    own = said(active(type_, index, noun="question"), "--event", "workflow-initialized")
    assert own == (
        start.replace("your feature", "your question")
        if type_ in ("quick", "our-own")
        else texts[EVENTS[0]]
    )


@pytest.mark.demand("N8.b", "N8.f", "N8.j", "N9.f", "N4.f")
def test_what_is_absent_foreign_or_would_break_the_block(said: Next) -> None:
    workflow = active("feature", 2)
    whole = said(workflow)
    del workflow["artifact_folder"]
    assert said(workflow) == whole != ""
    assert said(workflow, "--phase", "15-operations") == FALLBACK
    discovery = block("Start a new feature", "Review discovery report", "View project status")
    for state in (None, workflow, "broken"):
        assert said(state, "--phase", "discover") == discovery
    for key in ("01-a\n---", "01-gr\u00f6\u00dfe", "01-a\r", "01-\u202e", ""):
        breaking = {"phases": ["00-quick-scan", key, "04-design"], "current_phase_index": 0}
        assert said(breaking) == said(breaking, "--event", "gate-passed") == ""
        assert said(breaking, "--phase", "00-quick-scan") == FALLBACK


@pytest.mark.demand(
    "N1.a", "N1.b", "N1.c", "N1.d", "N1.e", "N1.f", "N1.g", "N1.h", "N4.d", "N12.a", "N12.b"
)
def test_everything_that_is_emitted_is_a_canonical_block(said: Next) -> None:
    seen = dict.fromkeys(text for _, text in everything(said))
    assert len(seen) > 50
    for text in seen:
        assert re.findall(PROMPT_BLOCK, text, re.MULTILINE) == [text.removesuffix("\n")]
        opening, header, *items, closing, after = text.split("\n")
        assert (opening, header, closing, after) == ("---", "SUGGESTED NEXT STEPS:", "---", "")
        assert 2 <= len(items) <= 4
        for number, item in enumerate(items, 1):
            assert re.fullmatch(rf"  \[{number}\] \S.*", item)
            assert re.findall(ITEM, item) == [(str(number), item[6:])]
        assert text.isascii()
        assert "\r" not in text


def section_blocks(agent_file: Path) -> list[str]:
    """The blocks that the prompt section of an agent file prescribes."""
    return FENCES.findall(agent_file.read_text().partition("\n# SUGGESTED PROMPTS\n")[2])


@pytest.mark.demand("N4.a", "N4.b", "N4.c", "N4.e", "N4.g")
def test_a_tiered_block_has_one_primary_then_alternatives_then_the_utility(
    said: Next, tmp_path: Path
) -> None:
    assert phasegate("agent-file", "install", "agents", cwd=tmp_path).code == 0
    shown = json.loads(phasegate("agent-file", "list", "--json", cwd=tmp_path).stdout)
    names = [row["name"] for row in shown if row["kind"] == "sub-orchestrator"]
    files = [
        (name, text) for name in names for text in section_blocks(tmp_path / f"agents/{name}.md")
    ]
    assert {name for name, _ in files} == set(names) != set()
    after, ways_on = (
        {"workflow-completed", "discover", "discover-orchestrator"},
        ("Continue to ", "Complete workflow "),
    )
    for what, text in [*everything(said), *files]:
        if what in {"gate-failed", "workflow-cancelled", "fallback"} or text == FALLBACK:
            continue
        primary, *alternatives, utility = [
            words for _, words in re.findall(ITEM, text, re.MULTILINE)
        ]
        assert utility == ("View project status" if what in after else "Show workflow status"), (
            what,
            text,
        )
        assert 1 <= len(alternatives) <= 2
        assert utility not in alternatives
        assert not any(words.startswith(ways_on) for words in alternatives)
        assert primary.startswith(
            (*ways_on, "Describe your ", "Resolve blocker and retry", "Start a new feature")
        )


GOOD = block("Go on", "Review", "Show workflow status")
STATUS = "---\nSTATUS: Risk assessment complete. Returning results to impact-analysis-orchestrator.\n---\n"
FRONT = "---\ntitle: Design\n---\n\n# Design\n\n"
JUDGED = {
    "next-steps": [
        (GOOD, []),
        (GOOD.replace("---\nS", "----\nS"), ["wrong-delimiter"]),
        (GOOD[:-4] + "\u2014\u2014\u2014\n", ["wrong-delimiter"]),
        (GOOD[:-1] + " \n", ["wrong-delimiter"]),
        (GOOD.replace("STEPS:", "STEPS"), ["wrong-header"]),
        (GOOD.replace("  [2]", "   [2]"), ["item-prefix"]),
        (GOOD.replace("Go on", "Go \u2192 on"), ["non-ascii"]),
        (GOOD.replace("\n", "\r\n"), ["crlf"]),
        (block("Go on"), ["too-few-items"]),
        (block(*"abcd"), []),
        (block(*"abcde"), ["too-many-items"]),
        (GOOD.replace("[3]", "[4]"), ["numbering"]),
        (GOOD.replace("  [2]", "\n  [2]"), ["blank-line"]),
        (GOOD + "Good luck!\n", ["not-last"]),
        (f"{FRONT}```\n{GOOD}```\n\nThat was a quotation.\n\n{GOOD}", []),
        (f"{FRONT}I did nothing.\n", ["no-block"]),
        (f"{FRONT}{GOOD}\nI did nothing.\n", ["not-last"]),
    ],
    "status": [
        (STATUS, []),
        (FRONT + STATUS, []),
        (STATUS.replace("---\nS", "----\nS"), ["wrong-delimiter"]),
        (STATUS.replace("STATUS:", "Status:"), ["wrong-header"]),
        (STATUS[:-4] + "  [1] Go on\n---\n", ["menu-in-status"]),
        (GOOD, ["menu-in-status"]),
        (STATUS.replace("\n", "\r\n"), ["crlf"]),
        (STATUS + "Bye.\n", ["not-last"]),
    ],
}


@pytest.mark.demand("N3.a", "N3.b", "N3.c", "N3.d", "N3.e", "N3.f", "N3.g", "N3.h")
@pytest.mark.parametrize("kind", JUDGED)
def test_each_broken_rule_of_a_block_has_its_name(tmp_path: Path, kind: str) -> None:
    for text, errors in JUDGED[kind]:
        (tmp_path / "answer.txt").write_bytes(text.encode())
        done = phasegate("block", "check", "--kind", kind, "--json", "answer.txt", cwd=tmp_path)
        assert (done.code, done.json["errors"]) == (1 if errors else 0, errors), text


@pytest.mark.demand("N2.a", "N2.b", "N12.a", "N12.b")
def test_the_file_of_every_sub_agent_prescribes_its_status_to_the_byte(tmp_path: Path) -> None:
    assert phasegate("agent-file", "install", "agents", cwd=tmp_path).code == 0
    shown = json.loads(phasegate("agent-file", "list", "--json", cwd=tmp_path).stdout)
    parents = {row["name"]: row["parent"] for row in shown if row["kind"] == "sub-agent"}
    assert len(parents) == 17
    for name, parent in parents.items():
        (task,) = re.findall(
            r"^task: (.+)$", (tmp_path / f"agents/{name}.md").read_text(), re.MULTILINE
        )
        (status,) = section_blocks(tmp_path / f"agents/{name}.md")
        assert status == f"---\nSTATUS: {task} complete. Returning results to {parent}.\n---\n"
        assert re.findall(STATUS_BLOCK, status, re.MULTILINE) == [status.removesuffix("\n")]
        assert not re.search(r"\[\d\]", status)
