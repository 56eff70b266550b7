"""The JSON result of an answer, field by field (D7)."""

from __future__ import annotations

import json

import msgspec
import pytest

from phasegate.core.answer.json_result import MAX_DEPTH, AgentResponse, check_result
from phasegate.core.answer.parse import Answer, parse_answer

SUCCESS = {
    "job_id": "3a6b8c9d-1e2f-4a5b-8c9d-1e2f4a5b8c9d",
    "wp_id": "WP01",
    "success": True,
    "status": "completed",
    "summary": "Implemented LoginForm component with full test coverage",
    "commits": [
        {"sha": "abc123def456...", "message": "WP01: Implement login form with validation"}
    ],
    "artifacts": {
        "files_created": ["src/components/LoginForm.tsx", "src/hooks/useLogin.ts"],
        "test_coverage": "87.5%",
        "lint_status": "passed",
    },
    "pr_url": "https://example.invalid/org/repo/pull/42",
    "duration_seconds": 1847,
    "next_steps": [
        "Await code review from @reviewer",
        "WP02 can start in parallel (no dependencies)",
    ],
}
FAILURE = {
    "job_id": "3a6b8c9d-1e2f-4a5b-8c9d-1e2f4a5b8c9d",
    "wp_id": "WP01",
    "success": False,
    "status": "blocked",
    "error": "Cannot modify src/services/auth.ts (outside file scope)",
    "commits": [{"sha": "abc123def456...", "message": "WP01: Implement component (incomplete)"}],
    "blocked_reason": "File scope violation",
    "remediation": "Contact human: Need to refactor auth.ts in separate WP",
    "duration_seconds": 342,
    "cleanup_required": True,
}
ESCALATION = """{
"success": false,
"status": "blocked",
"error": "FR-AUTH-001 cannot be satisfied: email regex library required",
"blocked_reason": "Dependency not permitted (governance violation)",
"remediation": "Human must approve zod library addition"
}"""
REQUIRED = {"job_id": "j", "wp_id": "WP01", "success": True, "status": "completed"}


def parse(text: str) -> Answer:
    return parse_answer(text, "implement")


def given(**changes: object) -> str:
    return json.dumps({**REQUIRED, **changes})


@pytest.mark.demand("D7.a", "D7.d")
@pytest.mark.parametrize("fields", [SUCCESS, FAILURE, REQUIRED, {**REQUIRED, "wp_id": None}])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_response_is_read_as_it_was_given(fields: dict[str, object], indent: int | None) -> None:
    answer = parse(json.dumps(fields, indent=indent))
    assert answer.result == fields
    assert answer.response == msgspec.convert(fields, AgentResponse)
    assert answer.result_error is None


@pytest.mark.demand("D7.d")
@pytest.mark.parametrize("name", REQUIRED)
def test_a_response_without_a_required_field_is_malformed(name: str) -> None:
    fields = {key: value for key, value in SUCCESS.items() if key != name}
    answer = parse(json.dumps(fields))
    assert answer.result is None
    assert answer.result_error is not None
    assert name in answer.result_error


@pytest.mark.demand("D7.b")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("job_id", 1),
        ("job_id", None),
        ("wp_id", 1),
        ("success", "false"),
        ("success", "true"),
        ("success", 1),
        ("success", 0),
        ("success", None),
        ("success", [True]),
        ("status", None),
        ("status", 1),
        ("summary", 1),
        ("commits", {}),
        ("commits", ["abc"]),
        ("commits", [{"message": "no sha"}]),
        ("commits", [{"sha": 1, "message": "x"}]),
        ("artifacts", []),
        ("artifacts", {"files_created": "a"}),
        ("artifacts", {"files_created": [1]}),
        ("artifacts", {"lint_status": True}),
        ("artifacts", {"test_coverage": []}),
        ("pr_url", 1),
        ("duration_seconds", "12"),
        ("duration_seconds", True),
        ("next_steps", "one"),
        ("next_steps", [1]),
        ("error", {}),
        ("blocked_reason", []),
        ("remediation", False),
        ("cleanup_required", "yes"),
        ("cleanup_required", 1),
    ],
)
def test_a_field_of_the_wrong_type_is_malformed(name: str, value: object) -> None:
    answer = parse(given(**{name: value}))
    assert answer.result is None
    assert answer.result_error is not None
    assert name in answer.result_error


@pytest.mark.demand("D7.b")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            '{"success": false, "success": true, "job_id": "j", "wp_id": null, "status": "completed"}',
            "duplicate key",
        ),
        (given(x=0).replace("0}", '{"a": 1, "a": 2}}'), "duplicate key"),
        (given(x=0).replace("0}", '{"a": 1, "\\u0061": 2}}'), "duplicate key"),
        (given(duration_seconds=0).replace("0}", "NaN}"), "NaN"),
        (given(duration_seconds=0).replace("0}", "-Infinity}"), "Infinity"),
        (given(duration_seconds=0).replace("0}", "1e999}"), "too large"),
        (given(duration_seconds=0).replace("0}", "1" * 10_000 + "}"), "10000 digits"),
        (given(x=0).replace("0}", "1." + "1" * 10_000 + "}"), "digits"),
        (given(x=0).replace("0}", "01}"), "malformed"),
        (given(x=0).replace("0}", "}"), "malformed"),
        (given(x=0).replace("0}", "0,}"), "malformed"),
        (given(x=0).replace("0}", "[1}]"), "not valid JSON"),
        (given(x=0).replace("0}", "yes}"), "not valid JSON"),
        (given(x=0).replace("0}", "'a'}"), "not valid JSON"),
        (given(x=0).replace("0}", '"a\nb"}'), "not valid JSON"),
        (given(x=0).replace("0}", '"\\ud800"}'), "surrogates not allowed"),
        (given(x=0).replace("0}", "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}"), "deeper than"),
        (given(x=0)[:-1], "cut off"),
        (given(x=0)[:-1] + ', "y": "', "not valid JSON"),
        (given(summary="x" * (1 << 20)), "longer than"),
    ],
)
def test_malformed_json_is_named_and_no_crash(text: str, why: str) -> None:
    answer = parse(f"words\n{text}\n")
    assert answer.result is None
    assert answer.result_error is not None
    assert answer.result_error.startswith("line 2: the JSON object ")
    assert why in answer.result_error


@pytest.mark.demand("D7.b")
def test_deep_nesting_is_no_crash_and_just_below_the_limit_is_read() -> None:
    assert parse('{"success":' + "[" * 200_000).result is None
    assert parse('{"success":{"a":' * 100_000).result is None
    depth = MAX_DEPTH - 1
    assert parse(given(x=0).replace("0}", "[" * depth + "]" * depth + "}")).result is not None


@pytest.mark.demand("D7.c")
@pytest.mark.parametrize(
    "text",
    [
        "Done. {} Bye.",
        "Result: {}",
        "`{}`",
        "[{}]",
        '{{"a": 1}}\n{}\n{{"b": [2]}}',
        "```json\n{}\n```",
        "```\n{}\n```\nwords",
        "~~~JSON\n{}\n~~~",
        '{{"job_id": "x"}}\n{}',
        '{}\n{{"success": "no"}}',
        'a set {{"a", "b"}} and {{"broken": \n{}',
        "if (x) {{ y }}\n{}",
        'print("{{")\n{}',
        '- {{"a": 1,\n+ {{"a": 2,\n{}',
        "{{{{ placeholder }}}}\n{}",
    ],
)
def test_extra_text_around_the_response_is_tolerated(text: str) -> None:
    if (
        "broken" in text
    ):  # what follows an object that does not break off by itself is taken for a part of it
        text = text.replace("\n{}", "oops\n{}")
    answer = parse(text.format(json.dumps(SUCCESS)))
    assert answer.result == SUCCESS
    assert answer.result_error is None


@pytest.mark.demand("D7.c")
def test_the_last_valid_object_counts() -> None:
    first, second = given(summary="first"), given(summary="second")
    for between in ("\n", " ", "\n```json\n", "\n<thought>x</thought>\n"):
        tail = "\n```" if "```" in between else ""
        answer = parse(f"{first}{between}{second}{tail}")
        assert answer.result is not None
        assert answer.result["summary"] == "second"
    answer = parse(f"{first}\n{given(success='no')}")
    assert answer.result is not None
    assert answer.result["summary"] == "first"


@pytest.mark.demand("D7.c")
@pytest.mark.parametrize(
    "text",
    [
        "<thought>{}</thought>",
        "<!-- {} -->",
        "<![CDATA[{}]]>",
        "```python\n{}\n```",
        "```json\n{}",
        "<thought>{}",
        '{{"result": {}}}',
        '{{"job_id": "x", "previous": {}}}',
        '{{"success": false, "previous": {}',
        '"{}"',
    ],
)
def test_a_response_that_is_quoted_or_nested_does_not_count(text: str) -> None:
    nested = json.dumps(json.dumps(SUCCESS))[1:-1] if text == '"{}"' else json.dumps(SUCCESS)
    assert parse(text.format(nested)).result is None


@pytest.mark.demand("D7.c", "P6.j")
def test_a_response_is_not_assembled_across_a_gap() -> None:
    half = len(given()) // 2
    for gap in ("<!-- x -->", "<thought>x</thought>"):
        assert parse(given()[:half] + gap + given()[half:]).result is None


@pytest.mark.demand("D7.d")
def test_optional_fields_may_be_null_and_unknown_ones_are_let_be() -> None:
    nulls = {name: None for name in AgentResponse.__struct_fields__ if name not in REQUIRED}
    answer = parse(given(**nulls, notes={"a": [1]}))
    assert answer.response == AgentResponse(
        job_id="j", wp_id="WP01", success=True, status="completed"
    )
    assert answer.result is not None
    assert answer.result["notes"] == {"a": [1]}


def test_no_object_is_no_malformed_one() -> None:
    for text in ("", "words", '{"a": 1}', "{", '{"'):
        assert (parse(text).result, parse(text).result_error) == (None, None)


@pytest.mark.demand("D7.a")
@pytest.mark.parametrize(
    ("changes", "refusals"),
    [
        ({}, []),
        ({"job_id": "other"}, ["AnotherJob"]),
        ({"job_id": ""}, ["AnotherJob"]),
        ({"wp_id": "WP02"}, ["AnotherPackage"]),
        ({"wp_id": None}, ["AnotherPackage"]),
        ({"job_id": "other", "wp_id": "WP02"}, ["AnotherJob", "AnotherPackage"]),
        ({"status": "blocked"}, ["StatusContradictsSuccess"]),
        ({"status": "COMPLETED"}, ["StatusContradictsSuccess"]),
        ({"success": False}, ["StatusContradictsSuccess"]),
        ({"success": False, "status": "blocked"}, []),
        ({"success": False, "status": "failed"}, []),
    ],
)
def test_another_jobs_answer_and_a_contradiction_are_refused(
    changes: dict[str, object], refusals: list[str]
) -> None:
    response = parse(given(**changes)).response
    assert response is not None
    assert check_result(response, "j", "WP01") == refusals


@pytest.mark.demand("D7.a")
def test_a_run_that_is_of_no_package_answers_with_null() -> None:
    response = parse(given(wp_id=None)).response
    assert response is not None
    assert check_result(response, "j", None) == []


@pytest.mark.demand("D7.a")
def test_the_escalation_of_the_specification_has_no_ids_and_is_this_jobs() -> None:
    response = parse(ESCALATION).response
    assert response is not None
    assert check_result(response, "j", "WP01") == []
    assert response.blocked_reason == "Dependency not permitted (governance violation)"
    assert response.remediation == "Human must approve zod library addition"


@pytest.mark.demand("D7.a")
@pytest.mark.parametrize(
    ("changes", "refusals"),
    [
        ({"job_id": "other"}, ["AnotherJob"]),
        ({"wp_id": "WP02"}, ["AnotherPackage"]),
        ({"job_id": "j"}, []),
        ({"wp_id": "WP01"}, []),
    ],
)
def test_an_escalation_with_anothers_id_is_refused(
    changes: dict[str, object], refusals: list[str]
) -> None:
    response = parse(json.dumps({**json.loads(ESCALATION), **changes})).response
    assert response is not None
    assert check_result(response, "j", "WP01") == refusals


@pytest.mark.demand("D7.d")
@pytest.mark.parametrize(
    "changes",
    [
        {"success": True},
        {"success": True, "status": "completed"},
        {"status": "failed"},
        {"job_id": None},
    ],
)
def test_only_a_blocked_failure_may_leave_out_its_ids(changes: dict[str, object]) -> None:
    answer = parse(json.dumps({**json.loads(ESCALATION), **changes}))
    assert answer.response is None
    assert answer.result_error is not None
