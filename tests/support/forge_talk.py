"""Everything that an adapter can ask of a forge, asked of the fake: for the contracts with what the forges publish."""

from __future__ import annotations

from pathlib import Path

from phasegate.core.forge.checks import CheckState
from phasegate.core.forge.pull_decision import PullState, ReviewDecision
from phasegate.forge.port import Forge, Issue, MergeOutcome, PullSpec
from support.fake_forge import FakeForge, FakeReview
from support.git_project import git, make_repository

BRANCHES = ("one", "two", "three")


def make_source(room: Path) -> Path:
    """A repository with a base and branches to be merged into it."""
    source = make_repository(room / "source", {"bye.py": "x = 1\n"}).root
    for name in BRANCHES:
        git(source, "checkout", "-q", "-b", name, "main")
        (source / name).write_text(name)
        git(source, "add", name)
        git(source, "commit", "-qm", name)
    git(source, "checkout", "-q", "main")
    return source


def talk(forge: Forge, fake: FakeForge) -> None:
    """Each call with each of its ends."""
    wanted = PullSpec("one", "main", "One", "What it is", True, ("ada",), ("phasegate",))
    assert forge.find_pulls("one", "main") == []
    made = forge.create_pull(wanted)
    assert made is not None
    assert made.draft
    assert forge.create_pull(wanted) is None
    assert [one.number for one in forge.find_pulls("one", "main")] == [made.number]
    changed = forge.update_body(made, "More")
    assert (changed.body, changed.draft) == ("More", True)
    fake.unknown_people = ("nobody",)
    extras = wanted._replace(reviewers=("ada", "nobody"))
    (problem,) = forge.add_labels_and_reviewers(changed, extras)
    assert "nobody" in problem
    fake.pulls[made.number].draft = False
    first = fake.remark(made.number, "At a line", path="bye.py")
    fake.remark(made.number, "Resolved", path="bye.py").resolved = True
    fake.remark(made.number, "Below", who="mallory", path="", line=0)
    fake.pulls[made.number].reviews.append(
        FakeReview(900, "grace", "CHANGES_REQUESTED", "No", fake.head("one"))
    )
    look = forge.fetch_pull(made.number)
    assert (look.review_decision, look.pull.draft) == (ReviewDecision.CHANGES_REQUESTED, False)
    assert {
        one.text: (one.may_write, one.is_settled)
        for one in look.remarks
        if one.path or one.text == "Below"
    } == {
        "At a line": (True, False),
        "Resolved": (True, True),
        "Below": (False, False),
    }
    thread = next(one.thread for one in look.remarks if one.text == first.text)
    forge.reply(made.number, thread, "Done")
    forge.reply(made.number, "", "Done, too")
    forge.set_status(fake.head("one"), True, "7 gates passed")
    fake.approve(made.number, "grace")
    assert forge.fetch_pull(made.number).review_decision is ReviewDecision.APPROVED
    found = {one.name: one.state for one in forge.fetch_pull(made.number).checks.found}
    assert found == {"ci/test": CheckState.PASSED, "phasegate": CheckState.PASSED}
    assert (
        forge.merge_pull(made.number, "0" * 40, "merge", queue=False).outcome is MergeOutcome.MOVED
    )
    fake.merge_fails = "not now"
    assert (
        forge.merge_pull(made.number, fake.head("one"), "merge", queue=False).outcome
        is MergeOutcome.NOT_YET
    )
    fake.merge_fails = ""
    merged = forge.merge_pull(made.number, fake.head("one"), "merge", queue=False)
    assert merged == (MergeOutcome.MERGED, fake.head("main"))
    assert forge.fetch_pull(made.number).pull.state is PullState.MERGED
    second = forge.create_pull(PullSpec("two", "main", "Two", "Queued"))
    assert second is not None
    assert (
        forge.merge_pull(second.number, fake.head("two"), "merge", queue=True).outcome
        is MergeOutcome.QUEUED
    )
    fake.issues = {41: ("Say hi", "Please"), 42: ("Say bye", "")}
    fake.labelled = {42: ["phasegate"]}
    assert forge.fetch_issue(41) == Issue(41, "Say hi", "Please")
    assert forge.list_issues("phasegate") == [Issue(42, "Say bye", "")]
    assert forge.list_issues("no-such-label") == []
    fake.closed_issues = {42}
    assert forge.fetch_issue(42).is_open is False
