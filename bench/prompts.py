"""Prompt tokens of the stand-in feature, by workflow and role, against the goals for the recorded one.

Tokens are characters / 4, as in the recording. The reference is the goal; the last rows say how much is about the feature.
"""

from __future__ import annotations

from collections import defaultdict

from bench.measure import Row
from bench.standin import JobPrompt, played
from phasegate.core.prompt.document import UnifiedPrompt
from phasegate.core.prompt.prompt_sizes import FEATURE_PARTS, measure_parts
from phasegate.prompts.agent_files import load_shipped_files

GOALS = {"quick": 40_000, "feature": 100_000}
# What the roles of `quick` had when the goal was met; a role that grows by a tenth shows
QUICK_BY_ROLE = {
    "plan": 4_200,
    "challenge": 3_300,
    "implement": 9_000,
    "review": 13_000,
    "archive": 3_200,
}
MAX_PROMPT = 8_000
# The aim is a half; the floor keeps what was reached
MIN_FEATURE_SHARE = 0.3


def rows() -> list[Row]:
    found = []
    for workflow, goal in GOALS.items():
        # A small feature may leave phases out; the goal is for all of them
        options = ("--full",) if workflow == "feature" and _knows_full() else ()
        with played(workflow, *options) as prompts:
            found += _rows_of(workflow, goal, prompts)
    return found


def _knows_full() -> bool:
    from phasegate.interfaces.cli.commands.run import run

    return any("--full" in option.opts for option in run.params)


def _rows_of(workflow: str, goal: int, prompts: list[JobPrompt]) -> list[Row]:
    by_role: dict[str, int] = defaultdict(int)
    for job in prompts:
        by_role[job.role] += len(job.xml) // 4
    largest = max(len(job.xml) // 4 for job in prompts)
    runs = len(prompts)
    return [
        _row(f"prompt tokens, {workflow}, {runs} runs", sum(by_role.values()), goal),
        *(
            _row(f"prompt tokens, {workflow}, {role}", tokens, QUICK_BY_ROLE[role])
            for role, tokens in by_role.items()
            if workflow == "quick"
        ),
        _row(f"largest prompt, {workflow}", largest, MAX_PROMPT),
        Row(
            f"share about the feature, {workflow}",
            feature_share(prompts),
            1,
            MIN_FEATURE_SHARE,
            at_least=True,
            unit="",
        ),
    ]


def _row(name: str, ours: int, goal: int) -> Row:
    return Row(name, ours, goal, 1, unit="tokens")


def feature_share(prompts: list[JobPrompt]) -> float:
    """Return the share of all tokens that are about the feature."""
    names = {file.name for file in load_shipped_files()}
    sizes = [
        size for job in prompts for size in measure_parts(UnifiedPrompt.from_xml(job.xml), names)
    ]
    about = sum(size.tokens for size in sizes if size.part in FEATURE_PARTS)
    return about / sum(size.tokens for size in sizes)
