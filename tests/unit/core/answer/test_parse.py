"""What an answer says, clause by clause of P6."""

from __future__ import annotations

import pytest

import phasegate
from phasegate.core.answer.parse import Answer, find_blockers, parse_answer
from phasegate.errors import ConfigError

PASS = "<review>PASS</review>"
ALL = ["PASS", "NEEDS_REVISION", "NEEDS_CHANGES", "REJECTED", "MAJOR_ISSUES"]
ALLOWED = {
    "plan": ["PASS", "NEEDS_REVISION"],
    "challenge": ["PASS", "NEEDS_REVISION", "REJECTED"],
    "implement": [],
    "review": ["PASS", "NEEDS_CHANGES", "MAJOR_ISSUES"],
    "archive": ["PASS", "NEEDS_CHANGES", "MAJOR_ISSUES"],
}
RESULT = '{"job_id": "j", "wp_id": null, "success": true, "status": "completed"}'
STEPS = "---\nSUGGESTED NEXT STEPS:\n  [1] Go on\n  [2] Show workflow status\n---"
STATUS = "---\nSTATUS: Review complete. Returning results to the orchestrator.\n---"


def marker(verdict: str) -> str:
    return f"<review>{verdict}</review>"


def task(task_id: str, status: str) -> str:
    return f'<task_status id="{task_id}">{status}</task_status>'


def review(text: str, **options: bool) -> Answer:
    return parse_answer(text, "review", **options)


# Verdicts


@pytest.mark.demand("P6.d", "P6.a")
@pytest.mark.parametrize(
    ("phase", "verdict"), [(phase, verdict) for phase in ALLOWED for verdict in ALLOWED[phase]]
)
def test_each_allowed_verdict_is_read_in_its_phase(phase: str, verdict: str) -> None:
    answer = parse_answer(f"Some words.\n\n{marker(verdict)}\n", phase)
    assert (answer.verdict, answer.error) == (verdict, None)


@pytest.mark.demand("P6.d", "P6.e")
@pytest.mark.parametrize(
    ("phase", "verdict"),
    [(phase, verdict) for phase in ALLOWED for verdict in ALL if verdict not in ALLOWED[phase]],
)
def test_each_other_verdict_is_foreign(phase: str, verdict: str) -> None:
    answer = parse_answer(f"{marker(verdict)}\n", phase)
    assert (answer.verdict, answer.error) == (None, "ForeignVerdict")
    assert verdict in answer.reason


@pytest.mark.demand("P6.e")
@pytest.mark.parametrize("own", ALLOWED["review"])
def test_a_foreign_verdict_is_an_error_even_beside_an_allowed_one(own: str) -> None:
    for text in (
        f"{marker('REJECTED')}\n{marker(own)}\n",
        f"{marker(own)}\n{marker('REJECTED')}\n",
    ):
        assert review(text).error == "ForeignVerdict"
        assert review(text).verdict is None


@pytest.mark.demand("P6.a")
@pytest.mark.parametrize(
    ("phase", "given", "worst"),
    [
        ("review", ["PASS", "NEEDS_CHANGES"], "NEEDS_CHANGES"),
        ("review", ["NEEDS_CHANGES", "PASS"], "NEEDS_CHANGES"),
        ("review", ["MAJOR_ISSUES", "NEEDS_CHANGES", "PASS"], "MAJOR_ISSUES"),
        ("archive", ["NEEDS_CHANGES", "MAJOR_ISSUES"], "MAJOR_ISSUES"),
        ("challenge", ["REJECTED", "NEEDS_REVISION"], "REJECTED"),
        ("challenge", ["NEEDS_REVISION", "PASS"], "NEEDS_REVISION"),
        ("plan", ["NEEDS_REVISION", "PASS"], "NEEDS_REVISION"),
    ],
)
def test_of_several_verdicts_the_most_severe_wins(phase: str, given: list[str], worst: str) -> None:
    answer = parse_answer("\n".join(marker(verdict) for verdict in given), phase)
    assert (answer.verdict, answer.error) == (worst, None)


@pytest.mark.demand("P6.f")
def test_a_planning_writer_needs_no_marker() -> None:
    answer = parse_answer("Wrote proposal.md.", "plan")
    assert (answer.verdict, answer.error) == (None, None)


@pytest.mark.demand("P6.f", "P6.k")
def test_a_plan_that_is_cut_off_may_have_lost_its_marker() -> None:
    assert parse_answer("Wrote proposal.md.", "plan", truncated=True).error == "CutOff"
    assert parse_answer("Wrote <!-- proposal.md.", "plan").error == "CutOff"


@pytest.mark.demand("P6.g")
def test_an_implementer_has_no_verdict_and_any_is_foreign() -> None:
    text = f"{task('1.1', 'COMPLETED')}\n{RESULT}\n"
    silent = parse_answer(text, "implement")
    assert (silent.verdict, silent.error, silent.task_statuses) == (
        None,
        None,
        {"1.1": "COMPLETED"},
    )
    assert silent.result is not None
    for verdict in ALL:
        assert parse_answer(f"{marker(verdict)}\n{text}", "implement").error == "ForeignVerdict"


@pytest.mark.demand("P6.n")
@pytest.mark.parametrize("phase", ["challenge", "review", "archive"])
@pytest.mark.parametrize(
    "text", ["", " \n\t\r\n", "Looks good to me.", "PASS", '{"verdict": "reject"}', RESULT]
)
def test_no_marker_is_an_error_and_never_a_pass(text: str, phase: str) -> None:
    answer = parse_answer(text, phase)
    assert (answer.verdict, answer.error) == (None, "MissingReviewMarker")
    assert "End the answer with exactly one of" in answer.reason


def test_an_unknown_phase_is_the_callers_mistake() -> None:
    for phase in ("", "Review", "../plan", "deploy"):
        with pytest.raises(ConfigError, match="unknown phase"):
            parse_answer(PASS, phase)


def test_the_parser_is_a_public_name() -> None:
    assert phasegate.parse_answer is parse_answer


# Where and how a marker counts


@pytest.mark.demand("P6.l")
@pytest.mark.parametrize("verdict", ["PASS", "NEEDS_CHANGES"])
@pytest.mark.parametrize(
    "line",
    [
        " {}",
        "\t{}",
        "x {}",
        "{} x",
        "{}.",
        "**{}**",
        "`{}`",
        "- {}",
        "> {}",
        "{0} {0}",
        "{}\u00a0",
        "{}\u200b",
        "\ufeff{}",
        "{}\x0b",
        "\x0c{}",
        "x\u2028{}",
        "x\x85{}",
        "x\x0b{}",
        "<!-- -->{}",
        "{}<!-- -->",
        "<thought></thought>{}",
        "<![CDATA[]]>{}",
    ],
)
def test_a_marker_counts_only_from_column_1_alone_on_its_line(line: str, verdict: str) -> None:
    answer = review(f"words\n{line.format(marker(verdict))}\n")
    assert (answer.verdict, answer.error) == (None, "MissingReviewMarker")


@pytest.mark.demand("P6.l")
@pytest.mark.parametrize(
    "text",
    [
        "<review>pass</review>",
        "<Review>PASS</Review>",
        "<review> PASS</review>",
        "<review>PASS </review>",
        "<review >PASS</review>",
        "<review>PASS</review >",
        "<review>\nPASS\n</review>",
        "<review>PASS",
        "<review>PASS|NEEDS_CHANGES</review>",
        "<review>PASS</rev",
        '<review id="1">PASS</review>',
        "<review>APPROVED</review>",
        "<review></review>",
        "<review/>",
    ],
)
def test_a_marker_counts_only_in_its_exact_form(text: str) -> None:
    assert review(f"words\n{text}\n").error == "MissingReviewMarker"


@pytest.mark.demand("P6.l", "P6.i")
@pytest.mark.parametrize("end", ["", "\n", "\r", "\r\n", " \t \n", "\n\n \n\t\n"])
def test_blanks_and_any_line_end_may_follow_a_marker(end: str) -> None:
    assert review(f"words\n{PASS}{end}").verdict == "PASS"


@pytest.mark.demand("P6.i")
@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_lines_end_at_lf_cr_and_crlf(end: str) -> None:
    assert review(f"words{end}{PASS}{end}").verdict == "PASS"


@pytest.mark.demand("P6.i")
@pytest.mark.parametrize(
    "end", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
)
def test_lines_end_at_nothing_else(end: str) -> None:
    assert len(f"words{end}{PASS}".splitlines()) == 2  # as Python sees it
    assert review(f"words{end}{PASS}").error == "MissingReviewMarker"


# Escape sequences


@pytest.mark.demand("P6.i")
@pytest.mark.parametrize(
    "text",
    [
        "\x1b[32m{}\x1b[0m",
        "\x1b[2K\r{}",
        "\x1b]0;title\x07{}",
        "\x1b]8;;https://example.invalid\x1b\\{}\x1b]8;;\x1b\\",
        "{}\n\x1b[?25h",
        "\x9b1m{}",
        "\x1b(B{}",
    ],
)
def test_escape_sequences_are_stripped_around_a_marker(text: str) -> None:
    answer = review(f"words\n{text.format(PASS)}\n")
    assert answer.verdict == "PASS"
    assert "\x1b" not in answer.text
    assert PASS in answer.text


@pytest.mark.demand("P6.i", "P6.j")
@pytest.mark.parametrize(
    "text",
    ["<rev\x1b[0miew>PASS</review>", "<review>PA\x1b[0mSS</review>", "<review>PASS\x9b0m</review>"],
)
def test_a_marker_is_not_put_together_by_stripping(text: str) -> None:
    assert review(f"{text}\n").error == "MissingReviewMarker"
    assert review(f"{text}\n{PASS}\n").error == "MissingReviewMarker"  # one spoils all like it


@pytest.mark.demand("P6.i", "P6.k")
@pytest.mark.parametrize("start", ["\x1b]0;", "\x1bP", "\x1b_", "\x1b^", "\x1bX", "\x9d", "\x90"])
def test_a_control_string_that_is_not_ended_on_its_line_is_cut_off_and_hides_no_line(
    start: str,
) -> None:
    for text in (f"words {start}\n{PASS}\n", f"{PASS}\n{start}", f"{start}\n{PASS}\n\x1b\\\n"):
        answer = review(text)
        assert (answer.verdict, answer.error, answer.truncated) == (None, "CutOff", True)
    assert review(f"{start}x\n<review>NEEDS_CHANGES</review>\n\x1b\\\n").verdict == "NEEDS_CHANGES"


@pytest.mark.demand("P6.i")
def test_stripping_can_open_a_thought() -> None:
    assert review(f"<tho\x1b[0mught>\n{PASS}\n").truncated


# What is taken out

QUOTES = {
    "thought": ("<thought>", "</thought>"),
    "nested thought": ("<thought>a<thought>b</thought>", "</thought>"),
    "thought with an attribute": ("<thought lang='en'>", "</thought >"),
    "thought in capitals": ("<Thought>", "</THOUGHT>"),
    "backtick fence": ("```", "```"),
    "longer fence": ("`````md", "``````"),
    "tilde fence": ("~~~ `x`", "~~~"),
    "indented fence": ("   ```", "  ```  "),
    "comment": ("<!--", "-->"),
    "CDATA": ("<![CDATA[", "]]>"),
}


@pytest.mark.demand("P6.j")
@pytest.mark.parametrize("kind", QUOTES)
@pytest.mark.parametrize("verdict", ["PASS", "NEEDS_CHANGES", "REJECTED"])
def test_what_is_quoted_is_not_searched(kind: str, verdict: str) -> None:
    start, end = QUOTES[kind]
    quoted = f"{start}\n{marker(verdict)}\n{task('1.1', 'FAILED')}\n{end}\n"
    alone = review(quoted)
    assert (alone.error, alone.task_statuses, alone.truncated) == ("MissingReviewMarker", {}, False)
    assert review(f"{quoted}\n{PASS}\n").verdict == "PASS"


@pytest.mark.demand("P6.k")
@pytest.mark.parametrize("kind", QUOTES)
def test_an_unclosed_quote_runs_to_the_end_and_is_cut_off(kind: str) -> None:
    start, _ = QUOTES[kind]
    inside = review(f"words\n{start}\n{PASS}\n")
    assert (inside.verdict, inside.error, inside.truncated) == (None, "MissingReviewMarker", True)
    before = review(f"words\n{PASS}\n{start}\n")
    assert (before.verdict, before.error, before.truncated) == (None, "CutOff", True)
    assert "line 3 is never closed" in before.reason


@pytest.mark.demand("P6.k")
def test_a_severe_verdict_before_the_cut_still_counts() -> None:
    answer = review("<review>MAJOR_ISSUES</review>\n```\n")
    assert (answer.verdict, answer.truncated) == ("MAJOR_ISSUES", True)


@pytest.mark.demand("P6.k")
def test_output_that_the_caller_lost_is_never_a_pass() -> None:
    assert review(f"{PASS}\n", truncated=True).error == "CutOff"
    assert review("<review>NEEDS_CHANGES</review>\n", truncated=True).verdict == "NEEDS_CHANGES"


@pytest.mark.demand("P6.j")
@pytest.mark.parametrize(
    "text",
    [
        "<!--\n```\n-->\n{}\n```\n```",  # the fence inside the comment is its text
        "```\n<!--\n```\n{}\n-->",
        "<thought>\n```\n</thought>\n{}\n```\n```",
        "```\n<thought>\n```\n{}\n",
        "~~~\n```\n~~~\n{}\n",
        "```\n~~~\n```\n{}\n",
        "<![CDATA[ <!-- ]]>\n{}\n",
        "<!-- <![CDATA[ -->\n{}\n",
        "<thought><!-- </thought>\n{}\n",
    ],
)
def test_what_opens_first_wins(text: str) -> None:
    assert review(text.format("<review>NEEDS_CHANGES</review>")).verdict == "NEEDS_CHANGES"


@pytest.mark.demand("P6.j")
@pytest.mark.parametrize(
    "text",
    [
        "````\n```\n{}\n````",  # shorter
        "```\n~~~\n{}\n```",  # another kind
        "```\n``` x\n{}\n```",  # an info string
        "```\n    ```\n{}\n```",  # too deep
        "```\n\t```\n{}\n```",
        "   ~~~\n{}\n~~~",
        "~~~ a~b`c\n{}\n~~~",
    ],
)
def test_a_fence_is_closed_as_commonmark_closes_it(text: str) -> None:
    answer = review(text.format("<review>NEEDS_CHANGES</review>"))
    assert (answer.error, answer.truncated) == ("MissingReviewMarker", False)


@pytest.mark.demand("P6.j")
@pytest.mark.parametrize(
    "line",
    ["``", "    ```", "\t```", "```x```", "``` a`b", "x ```", "> ```", "- ```", "~~", "x~~~"],
)
def test_what_commonmark_does_not_take_for_a_fence_is_none(line: str) -> None:
    assert review(f"{line}\n{PASS}\n").verdict == "PASS"


@pytest.mark.demand("P6.j")
@pytest.mark.parametrize(
    "text",
    [
        "<rev<!-- -->iew>PASS</review>",
        "<review>PA<thought>x</thought>SS</review>",
        "<review><![CDATA[PASS]]></review>",
        "<review>PASS<!--\n--></review>",
    ],
)
def test_nothing_is_assembled_across_a_gap(text: str) -> None:
    assert review(f"{text}\n").verdict is None
    assert PASS not in review(f"{text}\n").text


@pytest.mark.demand("P6.j")
@pytest.mark.parametrize("comment", ["<!-->", "<!--->", "<!-- a --!> b -->"])
def test_a_comment_that_html_and_xml_end_in_different_places_is_no_pass(comment: str) -> None:
    """`<!-- -->` is the control: every reader ends it in the same place."""
    for text in (f"{comment}\n{PASS}\n", f"{comment} -->\n{PASS}\n"):
        doubtful = review(text)
        assert (doubtful.verdict, doubtful.error) == (None, "DoubtfulPass")
        assert "the comment on line 1" in doubtful.reason
    assert review(f"<!-- -->\n{PASS}\n").verdict == "PASS"
    assert review(f"```\n{comment}\n```\n{PASS}\n").verdict == "PASS", "quoted, it is not a comment"


def test_a_blocker_is_kept_as_long_as_a_person_would_read_it() -> None:
    long = "x" * 5_000_000
    (said,) = find_blockers(f"BLOCKER: {long}\n")
    (answered,) = review(f"BLOCKER: {long}\n{PASS}\n").blockers
    assert said == answered
    assert 1_000 < len(said) < 1_100
    assert said.endswith(" [...]")
    assert find_blockers("BLOCKER: the key is missing\n") == ("the key is missing",)


# When PASS counts


@pytest.mark.demand("P6.m")
@pytest.mark.parametrize(
    "after",
    [
        "",
        "\n\n",
        f"\n{RESULT}",
        f"\n\n  {RESULT}\n\n",
        f"\n```json\n{RESULT}\n```",
        f"\n~~~ JSON\n\n{RESULT}\n\n~~~\n",
        f"\n```\n{RESULT}\n```",
        f"\n{STEPS}",
        f"\n\n{STEPS}\n\n",
        f"\n{STATUS}",
        f"\n{RESULT}\n{STEPS}",
        f"\n{RESULT}\n\n{STATUS}\n",
        f"\n```json\n{RESULT}\n```\n\n{STEPS}\n",
        f"\n{RESULT}\n{STEPS}".replace("\n", "\r\n"),
    ],
)
def test_a_result_and_a_block_may_follow_a_pass_in_this_order(after: str) -> None:
    answer = review(f"words\n{PASS}{after}")
    assert (answer.verdict, answer.reason) == ("PASS", "")


@pytest.mark.demand("P6.m")
@pytest.mark.parametrize(
    "after",
    [
        "words",
        ".",
        "\u00a0",
        "\x00",
        "<thought>hm</thought>",
        "<!-- x -->",
        "```\nx\n```",
        "```json\n{}\n```",
        f"```json\n{RESULT}\nwords\n```",
        f"```json\n{RESULT}\n```\n```json\n{RESULT}\n```",
        f"```python\n{RESULT}\n```",
        f"> {RESULT}",
        f"{RESULT} words",
        f"{RESULT}\n{RESULT}",
        f"{STEPS}\n{RESULT}",
        f"{STEPS}\n{STEPS}",
        f"{STEPS}\nwords",
        f"{STEPS.replace('---', '--- ')}",
        f"{STEPS.replace('  [2]', ' [2]')}",
        f"{STEPS.replace('[2]', '[3]')}",
        "---\nSUGGESTED NEXT STEPS:\n  [1] Only one\n---",
        f"{STATUS[:-4]}",
        f"{RESULT} {STEPS}",
        f"```\n{STEPS}\n```",
        '{"verdict": "reject"}',
        '{"job_id": "j"}',
    ],
)
def test_a_pass_that_anything_else_follows_does_not_count(after: str) -> None:
    answer = review(f"words\n{PASS}\n{after}\n")
    assert (answer.verdict, answer.error) == (None, "DoubtfulPass")


@pytest.mark.demand("P6.m")
@pytest.mark.parametrize(
    "other",
    [
        "<review>",
        "</review>",
        "<REVIEW>",
        "<rEvIeW",
        "< review>",
        "<\treview>",
        "< / review>",
        "<\nreview>",
        "<r e v i e w>",
        "<review-notes>",
        "`<review>`",
        "\\<review\\>",
        "&lt;review&gt;",
        "&LT;review",
        "&lt review",
        "&#60;review",
        "&#0060;review",
        "&#x3c;review",
        "&#X3C;review",
        "&amp;lt;review",
        "%3Creview",
        "%253creview",
        "\\u003creview",
        "\\x3Creview",
        "＜review",
        "﹤review",
        "＜／ｒｅｖｉｅｗ",
        "<ｒｅｖｉｅｗ",
        "<𝐫𝐞𝐯𝐢𝐞𝐰",
        "<ⓡⓔⓥⓘⓔⓦ",
        "<rеview",
        "<revіew",
        "<re\u200bview",
        "<\u2060review",
        "<re\u00adview",
        "<re\u0301view",
        "<réview",
        "<re\x00view",
        "<re\ufffdview",
        "<review>PASS</review> and so on",
    ],
)
def test_another_review_in_any_spelling_keeps_a_pass_from_counting(other: str) -> None:
    answer = review(f"words {other} words\n{PASS}\n")
    assert (answer.verdict, answer.error) == (None, "DoubtfulPass")
    assert "another <review on line 1" in answer.reason
    # The same behind a fence is quoted, and a severe verdict does not mind.
    assert review(f"```\n{other}\n```\n{PASS}\n").verdict == "PASS"
    assert (
        review(f"words {other} words\n<review>NEEDS_CHANGES</review>\n").verdict == "NEEDS_CHANGES"
    )


@pytest.mark.demand("P6.m")
@pytest.mark.parametrize(
    "harmless",
    [
        "review",
        "a review > b",
        "<rev",
        "<preview>",
        "<日本語テスト用>",
        "<détails>",
        "&lt;b&gt;",
        "% review",
        "a <b> review",
    ],
)
def test_words_that_only_resemble_a_review_tag_do_not_matter(harmless: str) -> None:
    assert review(f"words {harmless} words\n{PASS}\n").verdict == "PASS"


@pytest.mark.demand("P6.m", "D7.a")
def test_a_pass_beside_a_result_that_failed_does_not_count() -> None:
    failed = RESULT.replace("true", "false").replace("completed", "blocked")
    assert review(f"{PASS}\n{failed}\n").error == "DoubtfulPass"
    assert review(f"{failed}\n{PASS}\n").error == "DoubtfulPass"


# Task statuses


@pytest.mark.demand("P6.b")
def test_task_statuses_are_read_in_their_exact_form_only() -> None:
    lines = [
        task("1.1", "COMPLETED"),
        task("2.10", "FAILED") + " \t",
        " " + task("3.1", "COMPLETED"),
        task("3.2", "DONE"),
        task("x.1", "COMPLETED"),
        task("3.3", "COMPLETED") + " yes",
        "<task_status id='3.4'>COMPLETED</task_status>",
        task("3", "COMPLETED"),
        f"<!-- \n{task('3.5', 'COMPLETED')}\n-->",
        f"- {task('3.6', 'COMPLETED')}",
    ]
    answer = parse_answer("\n".join(lines), "implement")
    assert answer.task_statuses == {"1.1": "COMPLETED", "2.10": "FAILED"}
    assert (
        sum("<task_status does not count" in warning for warning in answer.warnings) == 5
    )  # the first five


@pytest.mark.demand("P6.b")
@pytest.mark.parametrize(
    "said", [("COMPLETED", "FAILED"), ("FAILED", "COMPLETED"), ("FAILED", "COMPLETED", "COMPLETED")]
)
def test_a_task_that_is_completed_and_failed_has_failed(said: tuple[str, ...]) -> None:
    answer = parse_answer("\n".join(task("1.1", status) for status in said), "implement")
    assert answer.task_statuses == {"1.1": "FAILED"}
    assert answer.warnings == ("task 1.1 is COMPLETED and FAILED: FAILED counts",)


# What people and later prompts see


@pytest.mark.demand("P6.c")
@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("<thought>secret</thought>\nwords", "\nwords"),
        ("a\n<thought>\nsecret\n</thought>\nb", "a\n\nb"),
        ("a <thought>secret</thought> b", "a [...] b"),
        ("<thought>secret<thought>x</thought>secret</thought> b", "[...] b"),
        ("a\n<thought>secret", "a\n"),
        ("a <THOUGHT x=y>secret</thought\n>", "a [...]"),
        ("```\n<thought>shown</thought>\n```", "```\n<thought>shown</thought>\n```"),
        ("<!-- shown -->", "<!-- shown -->"),
        ("a\r\nb\rc\x1b[31m!\x1b[0m", "a\nb\nc!"),
        ("<rev<thought>x</thought>iew>", "<rev[...]iew>"),
    ],
)
def test_thoughts_and_escape_sequences_are_removed_from_the_text(text: str, seen: str) -> None:
    assert parse_answer(text, "plan").text == seen


@pytest.mark.demand("D7.i")
def test_blocker_lines_are_found_outside_of_quotes() -> None:
    own = "BLOCKER: no network\nx BLOCKER: no\n  BLOCKER:\tno key \n"
    quoted = "```\nBLOCKER: quoted\n```\n<thought>\nBLOCKER: thought\n</thought>"
    assert parse_answer(own + quoted, "implement").blockers == ("no network", "no key")
    assert find_blockers("npm warn\r\n\x1b[31mBLOCKER: no\x1b[0m disk\r\n") == ("no disk",)
    assert find_blockers("nothing") == ()


@pytest.mark.demand("P6.m")
def test_the_block_at_the_end_is_the_agents_own() -> None:
    assert parse_answer(f"words\n{STEPS}\n\n", "implement").block == STEPS
    assert parse_answer(STATUS, "implement").block == STATUS


@pytest.mark.demand("P6.m")
@pytest.mark.parametrize(
    "text",
    [
        "```\n{}\n```",
        "<thought>\n{}\n</thought>",
        "<!--\n{}\n-->",
        "{}\nwords",
        "> {}",
        "words {}",
        "<!-- -->{}",
        "<![CDATA[\n{}\n]]>",
        "the file says:\n{}\n\nand no more",
    ],
)
def test_a_block_inside_quoted_content_is_not_the_agents(text: str) -> None:
    for block in (STEPS, STATUS):
        assert block in text.format(block)
        assert parse_answer(text.format(block), "implement").block is None


def test_warnings_name_the_line_and_stay_few() -> None:
    answer = review("words\n <review>PASS</review>\n" * 500)
    assert answer.warnings[0] == "line 2: this <review does not count"
    assert len(answer.warnings) == 5
