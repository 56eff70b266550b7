"""Pull requests: what the forge reports, what follows from it, and the texts that we post.

Anything that the forge does not report, or reports in an unknown form, counts as *no*: such a pull
request is not merged.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum

import msgspec

from phasegate.core.forge.outgoing_text import escape_for_forge, quote_untrusted

# GitHub accepts 65 536 characters
MAX_BODY_CHARS = 60_000
MAX_REMARK_CHARS = 4_000
MAX_REMARKS = 50
_MARKER_PREFIX = "<!-- phasegate:"


class PullState(StrEnum):
    OPEN = "open"
    MERGED = "merged"
    CLOSED = "closed"


class ReviewDecision(StrEnum):
    """The combined decision of the reviewers at a forge."""

    APPROVED = "approved"
    CHANGES_REQUESTED = "changes requested"
    NOT_APPROVED = "not approved yet"


class PullRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A pull request as the forge reports it."""

    number: int
    url: str
    state: PullState
    # Commit
    head: str
    # Branch
    base: str
    body: str = ""
    draft: bool = False
    merge_commit: str = ""
    queued: bool = False
    # The pull request is open, but its branch was deleted
    is_branch_deleted: bool = False


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """A comment on a pull request."""

    id: str
    author: str
    text: str
    # Whether the author may push to the repository
    may_write: bool
    path: str = ""
    line: int = 0
    # Resolved, or outdated: its lines no longer exist
    is_settled: bool = False
    # Thread for the reply
    thread: str = ""


class PullRequestSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """State of a pull request at one poll."""

    pull: PullRequest
    review_decision: ReviewDecision = ReviewDecision.NOT_APPROVED
    # None: still running, or unknown
    checks_passed: bool | None = None
    mergeable: bool | None = None
    remarks: tuple[Remark, ...] = ()


class PullStep(StrEnum):
    """What follows from a snapshot."""

    WAIT = "wait"
    FIX = "mend"
    MERGE = "merge"
    MERGED = "merged"
    # The user has to decide
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
    """Decide what to do about a pull request whose head must be the commit that we pushed.

    `handled_remarks` are the ids of remarks that were already addressed.
    """
    pull = snapshot.pull
    if pull.state is PullState.MERGED:
        return PullDecision(PullStep.MERGED, pull.merge_commit)
    if pull.state is PullState.CLOSED:
        remedy = "reopen it, or resolve to open a new one; or end the workflow: phasegate cancel"
        return PullDecision(PullStep.STOP, f"{pull.url} was closed without a merge", remedy)

    if pull.is_branch_deleted:
        remedy = "resolve to push it again; or end the workflow: phasegate cancel"
        return PullDecision(
            PullStep.STOP, f"the branch of {pull.url} was deleted on the forge", remedy
        )

    if pull.base != base:
        remedy = f"set its base back to {base}, then resolve"
        return PullDecision(
            PullStep.STOP, f"{pull.url} now targets {pull.base}, not {base}", remedy
        )

    if pull.head != head:
        remedy = "check what was pushed; to keep it, merge it into the local branch, then resolve"
        return PullDecision(
            PullStep.STOP,
            f"{pull.url} is at {pull.head[:12]}, a commit that was not checked here",
            remedy,
        )

    if open_remarks := select_open_remarks(snapshot.remarks, handled_remarks):
        return PullDecision(PullStep.FIX, f"{len(open_remarks)} remarks", remarks=open_remarks)

    wait_reason = _find_wait_reason(snapshot, auto_merge)
    if wait_reason:
        return PullDecision(PullStep.WAIT, wait_reason)

    return PullDecision(PullStep.MERGE)


def select_open_remarks(
    remarks: Iterable[Remark], handled_remarks: Collection[str]
) -> tuple[Remark, ...]:
    """Return the remarks that the next round must address: new, open, of authors who may push."""
    open_remarks = (
        remark
        for remark in remarks
        if remark.may_write
        and not remark.is_settled
        and remark.id not in handled_remarks
        and _is_request(remark.text)
    )
    return tuple(sorted(open_remarks, key=lambda remark: remark.id))[:MAX_REMARKS]


def _is_request(text: str) -> bool:
    """Return whether a text asks for something. Phasegate's own replies do not."""
    return bool(text.strip()) and _MARKER_PREFIX not in text


def _find_wait_reason(snapshot: PullRequestSnapshot, auto_merge: bool) -> str:
    pull = snapshot.pull
    if pull.queued:
        return "it is in the merge queue"
    if not auto_merge:
        return "to be merged manually on the forge"
    if pull.draft:
        return "it is a draft"
    if snapshot.review_decision is not ReviewDecision.APPROVED:
        return str(snapshot.review_decision)
    if snapshot.checks_passed is False:
        return "checks on the forge have failed"
    if snapshot.checks_passed is None:
        return "checks on the forge have not finished"
    if snapshot.mergeable is not True:
        return "the forge does not report it as mergeable"

    return ""


def format_remark_finding(remark: Remark) -> str:
    """Format a remark as a finding, quoted so that it does not look like Phasegate's own text."""
    if remark.line:
        location = f"{remark.path}:{remark.line}"
    else:
        location = remark.path or "the pull request"

    text = "\n".join(f"> {line}" for line in remark.text[:MAX_REMARK_CHARS].splitlines())
    return f"Remark of {remark.author} at {location}:\n{text}"


class PullBodyParts(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of the body of a pull request."""

    # Hidden line that identifies our pull request
    marker: str
    description: str
    # Reference to an issue
    issue: str = ""
    # Columns: requirement, packages, commits, tests
    requirements: Sequence[tuple[str, str, str, str]] = ()
    # Columns: gate, outcome, phase
    gates: Sequence[tuple[str, str, str]] = ()
    # Columns: package, title, commit
    packages: Sequence[tuple[str, str, str]] = ()
    cost: str = ""
    chain: str = ""


def build_marker(store: str, slug: str) -> str:
    """Return the hidden line that identifies Phasegate's own pull request of a branch."""
    return f"{_MARKER_PREFIX}{store}/{slug} -->"


def render_pull_body(parts: PullBodyParts) -> str:
    """Render the body of a pull request: evidence first, text of agents without markup."""
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
    max_chars = MAX_BODY_CHARS - len(parts.marker) - 20
    if len(text) > max_chars:
        text = f"{text[:max_chars]}\n\n(cut)"

    return f"{text}\n\n{parts.marker}\n"


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
    """Convert an issue to the description of a feature."""
    return f"Issue {number}: {' '.join(title.split())}\n\n{text[:MAX_REMARK_CHARS]}".strip()


def find_issue_reference(description: str) -> str:
    """Return the issue reference of a description, such as `#12`; "" if it came from no issue."""
    match = _ISSUE.match(description)
    if match:
        return f"#{match[1]}"
    return ""
