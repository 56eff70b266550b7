"""A pull request: what a forge says of it, what follows from that, and what we write there.

What the forge does not say, or says in words that we do not know, is a *no*: such a pull request is
not merged.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum

import msgspec

# GitHub takes 65 536 characters
MAX_BODY_CHARS = 60_000
MAX_REMARK_CHARS = 4_000
MAX_REMARKS = 50
_MARKER_PREFIX = "<!-- phasegate:"


class PullState(StrEnum):
    OPEN = "open"
    MERGED = "merged"
    CLOSED = "closed"


class ReviewDecision(StrEnum):
    """What the reviewers of a forge say, taken together."""

    APPROVED = "approved"
    CHANGES_REQUESTED = "changes requested"
    NOT_APPROVED = "not approved yet"


class PullRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A pull request as the forge has it."""

    number: int
    url: str
    state: PullState
    # The commit
    head: str
    # The branch
    base: str
    body: str = ""
    draft: bool = False
    merge_commit: str = ""
    queued: bool = False
    # It is open, and its branch is not there any more
    is_branch_deleted: bool = False


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wrote at a pull request."""

    id: str
    author: str
    text: str
    # Whether the author may push to the repository
    may_write: bool
    path: str = ""
    line: int = 0
    # Resolved, or about lines that are not there any more
    is_settled: bool = False
    # Where an answer goes
    thread: str = ""


class PullRequestSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a pull request."""

    pull: PullRequest
    review_decision: ReviewDecision = ReviewDecision.NOT_APPROVED
    # None: some are still running, or nothing is known
    checks_passed: bool | None = None
    mergeable: bool | None = None
    remarks: tuple[Remark, ...] = ()


class PullStep(StrEnum):
    """What follows from a look."""

    WAIT = "wait"
    FIX = "mend"
    MERGE = "merge"
    MERGED = "merged"
    # For a person here
    STOP = "stop"


class PullDecision(msgspec.Struct, frozen=True):
    step: PullStep
    reason: str = ""
    remedy: str = ""
    remarks: tuple[Remark, ...] = ()


def decide_pull_step(
    snapshot: PullRequestSnapshot,
    *,
    head: str,
    base: str,
    handled_remarks: Collection[str],
    auto_merge: bool,
) -> PullDecision:
    """What to do about a pull request whose head must be ours.

    `known` are the remarks that were dealt with.
    """
    pull = snapshot.pull
    if pull.state is PullState.MERGED:
        return PullDecision(PullStep.MERGED, pull.merge_commit)
    if pull.state is PullState.CLOSED:
        remedy = "reopen it or have it opened anew: resolve; or end the workflow: phasegate cancel"
        return PullDecision(PullStep.STOP, f"{pull.url} was closed without a merge", remedy)

    if pull.is_branch_deleted:
        remedy = "have it pushed anew: resolve; or end the workflow: phasegate cancel"
        return PullDecision(
            PullStep.STOP, f"the branch of {pull.url} was deleted at the forge", remedy
        )

    if pull.base != base:
        remedy = f"set its base back to {base}, then resolve"
        return PullDecision(
            PullStep.STOP, f"{pull.url} now goes into {pull.base}, not into {base}", remedy
        )

    if pull.head != head:
        remedy = (
            "see what was pushed there; to keep it, merge it into the local branch; then resolve"
        )
        return PullDecision(
            PullStep.STOP, f"{pull.url} is at {pull.head[:12]}, which nobody here judged", remedy
        )

    if due := select_open_remarks(snapshot.remarks, handled_remarks):
        return PullDecision(PullStep.FIX, f"{len(due)} remarks", remarks=due)

    waits = _find_wait_reason(snapshot, auto_merge)
    if waits:
        return PullDecision(PullStep.WAIT, waits)

    return PullDecision(PullStep.MERGE)


def select_open_remarks(
    remarks: Iterable[Remark], handled_remarks: Collection[str]
) -> tuple[Remark, ...]:
    """The remarks that a next round must deal with: of people who may write, open, and new."""
    due = (
        one
        for one in remarks
        if one.may_write
        and not one.is_settled
        and one.id not in handled_remarks
        and _is_request(one.text)
    )
    return tuple(sorted(due, key=lambda one: one.id))[:MAX_REMARKS]


def _is_request(text: str) -> bool:
    """Our own answers ask for nothing."""
    return bool(text.strip()) and _MARKER_PREFIX not in text


def _find_wait_reason(snapshot: PullRequestSnapshot, auto_merge: bool) -> str:
    pull = snapshot.pull
    if pull.queued:
        return "it is in the merge queue"
    if not auto_merge:
        return "a person merges it at the forge"
    if pull.draft:
        return "it is a draft"
    if snapshot.review_decision is not ReviewDecision.APPROVED:
        return str(snapshot.review_decision)

    if snapshot.checks_passed is not True:
        if snapshot.checks_passed is False:
            return "checks of the forge have failed"
        return "checks of the forge are not done"

    if snapshot.mergeable is True:
        return ""

    return "the forge does not call it mergeable"


def format_remark_finding(remark: Remark) -> str:
    """A remark as a finding of a next round: quoted, so that nothing in it is taken for ours."""
    if remark.line:
        place = f"{remark.path}:{remark.line}"
    else:
        place = remark.path

    text = "\n".join(f"> {line}" for line in remark.text[:MAX_REMARK_CHARS].splitlines())
    return f"Remark of {remark.author} at {place or 'the pull request'}:\n{text}"


class PullBodyParts(msgspec.Struct, frozen=True, kw_only=True):
    """What the body of a pull request tells."""

    # By which it is found again
    marker: str
    description: str
    # An issue
    issue: str = ""
    # Requirement, packages, commits, tests
    requirements: Sequence[tuple[str, str, str, str]] = ()
    # Gate, outcome, phase
    gates: Sequence[tuple[str, str, str]] = ()
    # Package, title, commit
    packages: Sequence[tuple[str, str, str]] = ()
    cost: str = ""
    chain: str = ""


def build_marker(store: str, slug: str) -> str:
    """The hidden line by which our pull request is told from one that somebody else opened on the
    same branch.
    """
    return f"{_MARKER_PREFIX}{store}/{slug} -->"


def render_pull_body(parts: PullBodyParts) -> str:
    """The text of a pull request: evidence first, agents' text as text only."""
    sections = [
        "## What was asked\n\n" + quote_untrusted(parts.description),
        f"Refers to {parts.issue}." if parts.issue else "",
        _render_table(
            "Requirements", ("requirement", "packages", "commits", "tests"), parts.requirements
        ),
        _render_table("Work packages", ("package", "title", "commit"), parts.packages),
        _render_table("Gates", ("gate", "outcome", "phase"), parts.gates),
        f"Cost: {parts.cost}." if parts.cost else "",
        f"Audit chain: `{parts.chain}` (`phasegate audit verify`)." if parts.chain else "",
    ]

    text = "\n\n".join(section for section in sections if section)
    room = MAX_BODY_CHARS - len(parts.marker) - 20
    if len(text) <= room:
        cut = text
    else:
        cut = f"{text[:room]}\n\n(cut)"

    return f"{cut}\n\n{parts.marker}\n"


def _render_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(_render_cell(field) for field in row)} |" for row in rows]
    if not lines:
        return ""
    return "\n".join(
        [f"## {title}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines]
    )


def _render_cell(text: str) -> str:
    return escape_for_forge(" ".join(text.split())).replace("|", "\\|")[:300]


_ISSUE = re.compile(r"Issue (\d+): ")


def issue_to_description(number: int, title: str, text: str) -> str:
    """An issue as the description of a feature."""
    return f"Issue {number}: {' '.join(title.split())}\n\n{text[:MAX_REMARK_CHARS]}".strip()


def find_issue_reference(description: str) -> str:
    """The issue that a description came from, as a forge refers to it; empty if it came from none."""
    found = _ISSUE.match(description)
    if found:
        return f"#{found[1]}"
    return ""


def quote_untrusted(text: str) -> str:
    """Text of others, as a quotation that does nothing."""
    return (
        "\n".join(f"> {escape_for_forge(line)}" for line in text[:MAX_REMARK_CHARS].splitlines())
        or "> (nothing)"
    )


# Word joiner: not seen, and a forge does not look through it
_JOINER = "\u2060"
_TRIGGERS = re.compile(r"(?<=[@#!&~$%])(?=[\w(])")
_CLOSING_KEYWORD = re.compile(
    r"\b(close[sd]?|fix(?:e[sd])?|resolve[sd]?|implement(?:s|ed)?)\b(?=[\s:]+\S*(?:[#/!]|[A-Z]-\d))",
    re.I,
)
_COMMAND = re.compile(r"^(\s*)/(?=\w)", re.M)


def escape_for_forge(text: str) -> str:
    """Text in which a forge finds no mention, no reference, no closing word, no command, no markup."""
    return defuse_triggers(text).replace("&", "&amp;").replace("<", "&lt;").replace("`", "'")


def defuse_triggers(text: str) -> str:
    """The same where there is no markup, in a title: it may become the message of a commit."""
    text = re.sub(r"(?<=http)s?:(?=//)", lambda found: found[0] + _JOINER, text)
    text = _CLOSING_KEYWORD.sub(lambda found: f"{found[1][0]}{_JOINER}{found[1][1:]}", text)
    return _TRIGGERS.sub(_JOINER, _COMMAND.sub(rf"\1{_JOINER}/", text))
