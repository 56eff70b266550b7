"""Pull requests: what the forge reports, what follows from it, and the texts that we post.

Anything that the forge does not report, or reports in an unknown form, counts as *no*: such a pull
request is not merged.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from enum import StrEnum

import msgspec

from phasegate.core.forge.checks import CheckPolicy, CommitChecks, judge_checks

MAX_REMARK_CHARS = 4_000
MAX_REMARKS = 50
MAX_REMARK_ROUNDS = 5
MARKER_PREFIX = "<!-- phasegate:"
# Terminal control sequences; what is left of others is removed as unprintable
_TERMINAL_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
# Not in quoted lines; `@phasegate-team` and `@phasegate/team` are others
_ADDRESSED = re.compile(r"^(?!\s*>).*?(?<![\w@/.-])@phasegate(?![\w/-]|\.\w)", re.I | re.M)
_TAB_COLUMNS = 4


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
    labels: tuple[str, ...] = ()
    # Accounts whose review was requested
    reviewers: tuple[str, ...] = ()
    merge_commit: str = ""
    queued: bool = False
    # The pull request is open, but its branch was deleted
    is_branch_deleted: bool = False


class RemarkKind(StrEnum):
    """Where a remark was made. Talk is a request only if it addresses Phasegate."""

    THREAD = "thread"
    # Text of a review that requests changes
    REVIEW = "review"
    TALK = "talk"


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """A comment on a pull request."""

    id: str
    author: str
    text: str
    # Whether the author may push to the repository
    may_write: bool
    kind: RemarkKind = RemarkKind.TALK
    is_bot: bool = False
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
    checks: CommitChecks = CommitChecks()
    # None: the forge has not computed it yet
    mergeable: bool | None = None
    # The forge's own rules for the base are not met
    is_blocked: bool = False
    # What the forge names as the reason if it is not mergeable
    merge_obstacle: str = ""
    # The rules of the base require its latest commit in the branch
    is_behind: bool = False
    # Why there is no approval, in words, if there is more to say than that
    review_note: str = ""
    remarks: tuple[Remark, ...] = ()


class PullStep(StrEnum):
    """The next step for a pull request, decided from a snapshot."""

    WAIT = "wait"
    FIX = "mend"
    MERGE = "merge"
    MERGED = "merged"
    # The forge reports that it cannot be merged: see if there is a conflict
    CONFLICT = "conflict"
    # The user has to decide
    STOP = "stop"


class PullDecision(msgspec.Struct, frozen=True):
    step: PullStep
    reason: str = ""
    remedy: str = ""
    remarks: tuple[Remark, ...] = ()
    # While it waits: waiting alone will not help
    needs_user: bool = False


class PullRules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that decide about a merge."""

    auto_merge: bool
    checks: CheckPolicy | tuple[str, ...] = CheckPolicy.ANY
    max_remark_rounds: int = MAX_REMARK_ROUNDS
    # The queue checks the rules of the base itself
    use_merge_queue: bool = False


class PullProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What was done about a pull request so far."""

    # Ids of the remarks that were already addressed
    handled_remarks: Collection[str] = ()
    # Rounds that remarks have caused
    remark_rounds: int = 0
    # This head was added to the merge queue
    was_queued: bool = False


def decide_pull_step(
    snapshot: PullRequestSnapshot,
    *,
    head: str,
    base: str,
    progress: PullProgress,
    rules: PullRules,
) -> PullDecision:
    """Decide the next step for a pull request whose head must be the commit that we pushed."""
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

    if open_remarks := select_open_remarks(snapshot.remarks, progress.handled_remarks):
        return _decide_about_remarks(open_remarks, progress, rules)

    waiting = _find_wait_reason(snapshot, base, rules)
    if progress.was_queued and not pull.queued:
        reason = f"{pull.url} was removed from the merge queue"
        if waiting is not None:
            reason = f"{reason}: {waiting.reason}"
        return PullDecision(
            PullStep.STOP, reason, "see why on the forge; resolve to add it to the queue again"
        )

    if snapshot.mergeable is False and not pull.queued:
        return PullDecision(
            PullStep.CONFLICT,
            waiting.reason if waiting else "the forge does not report it as mergeable",
            needs_user=bool(waiting and waiting.needs_user),
        )

    return waiting or PullDecision(PullStep.MERGE)


def _decide_about_remarks(
    remarks: tuple[Remark, ...], progress: PullProgress, rules: PullRules
) -> PullDecision:
    """Start a round for new remarks, unless remarks have caused too many rounds already."""
    if progress.remark_rounds < rules.max_remark_rounds:
        return PullDecision(PullStep.FIX, f"{len(remarks)} remarks", remarks=remarks)

    authors = ", ".join(dict.fromkeys(remark.author for remark in remarks))
    return PullDecision(
        PullStep.STOP,
        f"remarks have caused {progress.remark_rounds} rounds, and there are new ones by {authors}",
        "read them; resolve to allow more rounds, or resolve the threads on the forge first",
    )


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
        and _is_request(remark)
    )
    return tuple(sorted(open_remarks, key=lambda remark: remark.id))[:MAX_REMARKS]


def _is_request(remark: Remark) -> bool:
    """Return whether a remark asks for something. Phasegate's own replies do not, nor does talk
    that is not addressed to it.
    """
    text = remark.text
    if not text.strip() or MARKER_PREFIX in text:
        return False
    if remark.kind is not RemarkKind.TALK:
        return True

    return not remark.is_bot and _ADDRESSED.search(text) is not None


def _find_wait_reason(
    snapshot: PullRequestSnapshot, base: str, rules: PullRules
) -> PullDecision | None:
    """Return why a pull request waits, or None if it may be merged as far as is known."""
    pull = snapshot.pull
    verdict = judge_checks(snapshot.checks, rules.checks, base)
    if pull.queued:
        return PullDecision(PullStep.WAIT, "it is in the merge queue")
    # Reported first: reviewers wait for it, too
    if verdict.passed is False:
        return PullDecision(PullStep.WAIT, verdict.reason, needs_user=True)
    if not rules.auto_merge:
        return PullDecision(PullStep.WAIT, "to be merged manually on the forge")
    if pull.draft:
        return PullDecision(PullStep.WAIT, "it is a draft")
    if snapshot.review_decision is not ReviewDecision.APPROVED:
        return PullDecision(PullStep.WAIT, snapshot.review_note or str(snapshot.review_decision))
    if verdict.passed is not True:
        return PullDecision(PullStep.WAIT, verdict.reason, needs_user=verdict.needs_user)
    if snapshot.is_behind and not rules.use_merge_queue:
        return PullDecision(
            PullStep.STOP,
            f"{pull.url} is behind {base}, whose rules require its latest commit",
            f"merge {base} of the forge into the local branch, then resolve",
        )
    if snapshot.is_blocked and not rules.use_merge_queue:
        return PullDecision(PullStep.WAIT, f"the rules of {base} on the forge are not met yet")
    if snapshot.mergeable is not True:
        obstacle = snapshot.merge_obstacle
        return PullDecision(
            PullStep.WAIT,
            f"the forge does not report it as mergeable: {obstacle}".removesuffix(": "),
            needs_user=bool(obstacle),
        )

    return None


def format_remark_finding(remark: Remark) -> str:
    """Format a remark as a finding, quoted so that it does not look like Phasegate's own text."""
    if remark.line:
        location = f"{remark.path}:{remark.line}"
    else:
        location = remark.path or "the pull request"

    lines = remark.text[:MAX_REMARK_CHARS].splitlines()
    text = "\n".join(f"> {_clean_line(line)}" for line in lines)
    return f"{_clean_line(f'Remark of {remark.author} at {location}:')}\n{text}"


def _clean_line(line: str) -> str:
    """Return a line without tabs, terminal sequences and other unprintable characters."""
    expanded = _TERMINAL_SEQUENCE.sub("", line).expandtabs(_TAB_COLUMNS)
    return "".join(letter for letter in expanded if letter.isprintable())


def build_marker(store: str, slug: str) -> str:
    """Return the hidden line that identifies Phasegate's own pull request of a branch."""
    return f"{MARKER_PREFIX}{store}/{slug} -->"


_ISSUE = re.compile(r"Issue (\d+): ")


def issue_to_description(number: int, title: str, text: str) -> str:
    """Convert an issue to the description of a feature."""
    return f"Issue {number}: {' '.join(title.split())}\n\n{text[:MAX_REMARK_CHARS]}".strip()


def find_issue_reference(description: str) -> str:
    """Return a description's issue reference, such as `#12`, or "" if it has none."""
    match = _ISSUE.match(description)
    if match:
        return f"#{match[1]}"
    return ""
