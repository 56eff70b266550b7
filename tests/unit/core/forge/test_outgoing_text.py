"""Words of agents that a forge, a CI server or a bot acts on leave the machine without effect."""

from __future__ import annotations

import re

import pytest

from phasegate.core.forge.outgoing_text import (
    defuse_triggers,
    escape_for_forge,
    make_pull_title,
    quote_untrusted,
)

# What the receivers look for, by their documentation
RECEIVERS = {
    "a closed issue": re.compile(
        r"\b(?:close[sd]?|closing|fix(?:e[sd]|ing)?|resolve[sd]?|resolving|implement\w*)\b:?\s+"
        r"(?:\S+)?(?:#\d|GH-\d|https?://)"
        # Linear, Phabricator, Trac, Debian and KDE
        r"|\bcomplet(?:e[sd]?|ing)\b\s+[A-Z]+-\d|\bfix(?:es|ed)?\s+T\d|\bcloses ticket:\d"
        r"|^(?:closes|fixed|bug|closes-bug):\s*\d",
        re.I | re.M,
    ),
    "a mention": re.compile(r"@\w"),
    "a reference": re.compile(r"#\d|\bGH-\d|(?<!\w)[!&~$%]\d", re.I),
    "a skipped CI run": re.compile(
        r"\[(?:skip|no)[ -](?:ci|actions?|travis|appveyor)[^\]]*\]|\[(?:ci|actions)[ -]skip\]"
        r"|\[(?:ci *skip|skip *ci|CF-Pages-Skip|noci)\]"
        r"|\*\*\*NO_CI\*\*\*|^(?:skip-checks|request-checks|skip-ci|ci-skip):",
        re.I | re.M,
    ),
    "a signature": re.compile(r"^(?:[\w-]+-by|Change-Id): ", re.I | re.M),
    "a released version": re.compile(r"^Release-As:|\+semver:", re.I | re.M),
    "an order to a bot": re.compile(
        r"^\s*(?:bors|azp|dependabot|mergify|homu)[ :]|^(?:Auto-Submit|Commit-Queue):", re.I | re.M
    ),
    "a draft": re.compile(r"^\s*(?:draft:|\[draft\]|\(draft\)|wip:|\[wip\])", re.I),
    "a named reference": re.compile(r"\[(?:issue|epic|vulnerability):"),
    "an address": re.compile(r"https?://|(?<![:\u2060\w])//\w|\bwww\.\w", re.I),
    "an image": re.compile(r"!\["),
    "a command": re.compile(r"^/\w", re.M),
    "a control": re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"),
}
TRAPS = (
    "Fixes #7",
    "fixes: org/repo#7",
    "Closing GH-10",
    "resolves https://github.com/o/r/issues/7",
    "cc @org/everyone",
    "see GH-10 and gh-11",
    "[skip ci]",
    "[ci skip]",
    "[skip actions] and [no ci]",
    "***NO_CI***",
    "x\n\nskip-checks: true",
    "x\n\nSigned-off-by: Linus <l@example.invalid>",
    "x\n\nReviewed-by : Linus",
    "x\n\nCo-authored-by: A <a@example.invalid>\nChange-Id: I1",
    "![x](//evil.invalid/x.png)",
    "![x](https://evil.invalid/x.png)",
    "www.evil.invalid",
    "/approve",
    "x\n/merge",
    "Fi\u2060xes #7 \u202eevil\x1b[2J",
    "[\u200bskip ci]",
    "[skipci] or [CISkip]",
    "[CF-Pages-Skip]",
    "[noci]",
    "x\n\nSkip-CI: true",
    "x\n\nci-skip: yes",
    "x\n\nRelease-As: 99.0.0",
    "+semver: major",
    "bors r+",
    "x\n  bors: merge",
    "x\ndependabot merge",
    "mergify: queue",
    "azp run",
    "x\n\nAuto-Submit: true",
    "see [vulnerability:7] and [issue:group/project/7]",
    "Closes owner/repo#1",
    "`@user` in code",
    "@dependabot merge",
    "[x]: //evil.invalid/x.png",
    "Draft: do not merge",
    "[WIP] later",
    "(draft) later",
    "Completes ENG-123",
    "Fixes T123",
    "closes ticket:10",
    "Closes: 123456",
    "x\nBUG: 123",
    "x\n\nCloses-Bug: 123",
    "x\n\nrequest-checks: true",
    "x\n\nCommit-Queue: +2",
)
HONEST = (
    "WP01: Write what is due",
    "Add a // comment and a 50 % margin",
    "feat(WP01): parse a/b paths, 3 - 4",
    "Use the array[no] index",
    "Explain why: the cache was stale",
    "Jenkins is not used here",
    "Skip the no-op: it costs time",
    "Complete the list of bugs, and fix 3 tests",
    "Draft the plan (wip of last week)",
)
# Markdown that would make a trigger, a link, or a part of a body that looks like our own
MARKUP = (
    "GH\\-7",
    "Fixes GH\\-7",
    "[x](http:evil.invalid)",
    "[x]: http:evil.invalid",
    "## Gates",
    "~~~",
    "| gate | passed |",
    "===",
    "---",
    "> quoted",
)


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("make", [defuse_triggers, escape_for_forge, quote_untrusted])
def test_no_receiver_finds_a_trigger(trap: str, make: object) -> None:
    sent = make(trap)  # type: ignore[operator]
    found = {name for name, pattern in RECEIVERS.items() if pattern.search(sent)}
    assert found == set(), sent
    plain = re.sub(r"[\u2060\u200b\u202e\x1b]", "", trap)
    before = {name for name, pattern in RECEIVERS.items() if pattern.search(plain)}
    assert before or "Reviewed-by :" in trap, "the control: untouched, it is found"


@pytest.mark.parametrize("text", HONEST)
def test_honest_words_are_left_as_they_are(text: str) -> None:
    assert defuse_triggers(text) == text


@pytest.mark.parametrize("trap", TRAPS)
def test_a_text_that_is_made_safe_twice_stays_the_same(trap: str) -> None:
    once = defuse_triggers(trap)
    assert defuse_triggers(once) == once
    assert "#7" not in make_pull_title(trap)


@pytest.mark.parametrize("trap", MARKUP)
def test_markup_of_others_is_shown_as_text_in_a_body(trap: str) -> None:
    """Each of its marks is behind one backslash; an honest text is shown as it is."""
    sent = escape_for_forge(trap)
    assert re.search(r"(?<!\\)(?:\\\\)*(?:[\[|]|\\(?=-))|^[#~=>-]", trap, re.M), "the control"
    assert not re.search(r"(?<!\\)(?:\\\\)*(?:[\[|]|\\(?=-\d))|^[#~=>-]", sent, re.M), sent
    assert escape_for_forge("A list - and 3 > 2") == "A list - and 3 > 2"
