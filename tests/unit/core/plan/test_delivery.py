"""What a maintainer gets: a short subject, a message and one document without our machinery."""

from __future__ import annotations

import pytest

from phasegate.core.forge.pull_decision import issue_to_description
from phasegate.core.plan.delivery import (
    MAX_SUBJECT_CHARS,
    DeliveredTexts,
    find_changelog,
    forbids_changelog,
    make_title,
    render_document,
    render_merge_message,
    shorten_subject,
)
from phasegate.core.plan.requirements import read_spec

PROPOSAL = """\
---
audience: [agents, developers]
---
# Proposal: say goodbye

## Problem

People are greeted
and then left alone.

## Assumptions

- One language is enough.

## Open Questions

- None
"""
SPEC = """\
---
audience: [agents, developers]
---
<!-- spec-kitty: fr-count: 1 -->
# Feature: say goodbye

<!-- guide: two to five
sentences -->

## Overview

A farewell ends the visit.

## Flow

None: one function.

## Quality

None of the greetings becomes slower.

## Data

| Field | Rule |
|---|---|

## Functional Requirements

<!-- sk:fr id="FR-BYE-001" priority="high" -->
- A farewell must name the person
<!-- /sk:fr -->

```html
<!-- kept: this is an example -->
```

## Changes since Approval

<!-- guide: empty -->

<review>PASS</review>

---
SUGGESTED NEXT STEPS:
  [1] Continue
  [2] Show workflow status
---
"""
TEXTS = DeliveredTexts(
    slug="001-bye",
    description="please say goodbye, in whatever language, and do it politely; no new settings",
    documents={"proposal.md": PROPOSAL, "spec.md": SPEC, "tasks/WP01.md": "You are authorized"},
    decisions=("Which language? English", "Which language? English", "Keep it short."),
)


def test_the_document_has_the_specification_and_the_decisions_and_none_of_our_machinery() -> None:
    assert render_document(TEXTS) == (
        "# Say goodbye\n\n"
        "## Why\n\nPeople are greeted and then left alone.\n\n"
        "## Overview\n\nA farewell ends the visit.\n\n"
        "## Quality\n\nNone of the greetings becomes slower.\n\n"
        "## Functional Requirements\n\n- **FR-BYE-001**: A farewell must name the person\n\n"
        "```html\n<!-- kept: this is an example -->\n```\n\n"
        "## Assumptions\n\n- One language is enough.\n\n"
        "## Decisions\n\n- Which language? English\n- Keep it short.\n"
    )


def test_the_requirements_of_the_document_can_still_be_traced() -> None:
    (requirement,) = read_spec(render_document(TEXTS)).requirements
    assert (requirement.id, requirement.text) == ("FR-BYE-001", "A farewell must name the person")


def test_the_message_says_what_why_decisions_and_requirements_in_short_lines() -> None:
    message = render_merge_message(TEXTS, "docs/bye.md")
    assert message == (
        "Say goodbye\n\n"
        "A farewell ends the visit.\n\n"
        "People are greeted and then left alone.\n\n"
        "Decisions:\n- Which language? English\n- Keep it short.\n\n"
        "Requirements:\n- FR-BYE-001: A farewell must name the person\n\n"
        "Specification: docs/bye.md\n"
    )
    assert max(map(len, message.splitlines())) <= MAX_SUBJECT_CHARS


def test_a_message_that_an_agent_wrote_closes_no_issue_and_moves_no_cursor() -> None:
    spec = SPEC.replace("A farewell ends", "Closes #12, cc @all \x1b[2J: a farewell ends")
    message = render_merge_message(TEXTS._replace(documents={"spec.md": spec}), "")
    assert "Closes #12" not in message
    assert "\x1b" not in message
    assert "a farewell ends" in message


@pytest.mark.parametrize("hostile", [True, False])
def test_a_title_that_an_agent_wrote_triggers_nothing_and_moves_no_cursor(hostile: bool) -> None:
    words = "Fixes #7 for @org [skip ci] \x1b[2J\u202e" if hostile else "Say bye, as issue 7 asks"
    message = render_merge_message(TEXTS._replace(documents={"proposal.md": f"# {words}\n"}), "")
    subject = message.splitlines()[0]
    for trigger in ("Fixes", "#7", "@org", "[skip ci]", "\x1b", "\u202e"):
        assert trigger not in subject
    assert (subject == words) is not hostile, "the control: honest words stay as they are"
    assert message.count(subject) == 1


@pytest.mark.parametrize("is_issue", [True, False])
def test_a_subject_from_an_issue_triggers_nothing_and_one_of_the_user_may(is_issue: bool) -> None:
    words = "Say bye, fixes #9 [skip ci]"
    description = issue_to_description(7, words, "") if is_issue else words
    texts = TEXTS._replace(documents={}, description=description, decisions=())
    subject = render_merge_message(texts, "").splitlines()[0]
    assert ("fixes #9 [skip ci]" in subject) is not is_issue
    assert "Say bye" in subject


def test_a_subject_from_the_text_of_an_issue_moves_no_cursor() -> None:
    texts = TEXTS._replace(documents={}, description="Say bye \x1b[2J", decisions=())
    assert render_merge_message(texts, "").splitlines()[0] == "Say bye \\x1b[2J"


@pytest.mark.parametrize(
    ("heading", "title"),
    [
        ("# Proposal: `bye`", "Bye"),
        ("# Spec", "Please say goodbye, in whatever language, and do it politely; no new"),
        (
            "# {feature title}",
            "Please say goodbye, in whatever language, and do it politely; no new",
        ),
        ("# proposal.md", "Please say goodbye, in whatever language, and do it politely; no new"),
    ],
)
def test_a_title_comes_from_the_proposal_unless_it_has_none(heading: str, title: str) -> None:
    texts = TEXTS._replace(documents={"proposal.md": heading})
    assert make_title(texts) == title


def test_a_subject_is_one_short_line_whatever_the_title() -> None:
    assert shorten_subject("x" * 300) == "X" + "x" * 71
    assert shorten_subject("a\nb.") == "A b"
    assert shorten_subject("") == ""


def test_a_feature_without_documents_is_described_by_its_request() -> None:
    texts = TEXTS._replace(documents={}, decisions=())
    assert texts.description in render_document(texts)
    assert "no new\nsettings" in render_merge_message(texts, "")


@pytest.mark.parametrize(
    ("guidelines", "forbids"),
    [
        ("Do not edit\nCHANGELOG.md. Thanks!", True),
        ("- The changelog is generated automatically on release.", True),
        ("Release notes are written by maintainers.", True),
        ("Please add an entry to CHANGELOG.md.", False),
        ("Never commit to main. Update the changelog.", False),
        ("", False),
    ],
)
def test_guidelines_that_forbid_changelog_entries_are_recognized(
    guidelines: str, forbids: bool
) -> None:
    assert forbids_changelog(guidelines) is forbids


def test_a_changelog_is_one_that_the_project_keeps_in_its_root() -> None:
    assert find_changelog(["src/CHANGELOG.md", "README.md", "changes.py"]) == ""
    assert find_changelog(["Changes.rst", "HISTORY.md", "a.py"]) == "Changes.rst"
    assert find_changelog(["NEWS", "CHANGELOG.md"]) == "CHANGELOG.md"


def test_signs_and_requirement_ids_in_a_message_stay_whole() -> None:
    spec = SPEC.replace("A farewell ends the visit.", "A sign (+ or -) may " + "be there " * 5)
    spec = spec.replace("- A farewell must name the person", "A + B, unlike " + "FR-BYE-002 " * 9)
    texts = TEXTS._replace(documents={"spec.md": spec})
    message = render_merge_message(texts, "")
    assert "A sign (+ or -) may be there" in message
    assert message.count("FR-BYE-002") == 9
    assert "**FR-BYE-001**: A + B, unlike" in render_document(texts)
