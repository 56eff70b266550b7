"""A confirmation counts only with the word that the user has read."""

from __future__ import annotations

import io
import re

import pytest

from phasegate.interfaces.mcp.elicitation import (
    Elicitor,
    InputRequired,
    McpClient,
    NotConfirmed,
    PendingConfirmations,
)
from phasegate.interfaces.mcp.jsonrpc import Call, JsonObject, McpConnection

MODERN = McpClient("client", "1", can_elicit=True, is_modern=True)


def elicitor(
    pending: PendingConfirmations, params: JsonObject, client: McpClient = MODERN
) -> Elicitor:
    connection = McpConnection(io.BytesIO(), io.BytesIO())
    return Elicitor(Call(connection, 1, "tools/call", params), client, pending)


def ask(pending: PendingConfirmations, subject: object) -> tuple[str, str]:
    """The word of a new question, and the state that the client sends back."""
    with pytest.raises(InputRequired) as raised:
        elicitor(pending, {}).confirm("Merge it?", subject)
    found = re.search(r'Type "(\w+)" to confirm', str(raised.value.result["inputRequests"]))
    assert found is not None
    return found[1], str(raised.value.result["requestState"])


def reply(
    pending: PendingConfirmations, subject: object, state: object, answer: object
) -> NotConfirmed | None:
    params: JsonObject = {"requestState": state, "inputResponses": {"decision": answer}}
    return elicitor(pending, params).confirm("Merge it?", subject)


def typed(word: str) -> JsonObject:
    return {"action": "accept", "content": {"confirm": word}}


@pytest.mark.parametrize("form", ["{}", " {} ", '"{}"'])
def test_the_word_confirms_the_subject_it_was_asked_for(form: str) -> None:
    pending = PendingConfirmations()
    word, state = ask(pending, ("001-a", "complete"))
    assert reply(pending, ("001-a", "complete"), state, typed(form.format(word.upper()))) is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            {"action": "accept", "content": {"confirm": "yes"}},
            "the confirmation word was not typed",
        ),
        ({"action": "accept", "content": {}}, "the confirmation word was not typed"),
        ({"action": "accept"}, "the confirmation word was not typed"),
        ({"action": "decline"}, "the answer was decline"),
        ({"action": "cancel"}, "the answer was cancel"),
        ({"action": ["accept"]}, "there was no answer"),
        (None, "there was no answer"),
        ("accept", "there was no answer"),
    ],
)
def test_no_other_answer_confirms(answer: object, reason: str) -> None:
    pending = PendingConfirmations()
    _, state = ask(pending, "subject")
    refused = reply(pending, "subject", state, answer)
    assert refused is not None
    assert refused.reason.startswith(reason)


def test_the_answer_to_another_subject_does_not_count_and_uses_the_question_up() -> None:
    pending = PendingConfirmations()
    word, state = ask(pending, ("001-a", "retry"))
    assert reply(pending, ("001-a", "complete"), state, typed(word)) is not None
    assert reply(pending, ("001-a", "retry"), state, typed(word)) is not None


def test_an_answer_counts_once() -> None:
    pending = PendingConfirmations()
    word, state = ask(pending, "subject")
    assert reply(pending, "subject", state, typed(word)) is None
    assert reply(pending, "subject", state, typed(word)) is not None


@pytest.mark.parametrize("state", [None, 7, "", "made up", ["x"]])
def test_a_state_that_was_never_given_out_confirms_nothing(state: object) -> None:
    pending = PendingConfirmations()
    word, _ = ask(pending, None)
    assert reply(pending, None, state, typed(word)) is not None


def test_the_oldest_of_too_many_questions_is_forgotten() -> None:
    pending = PendingConfirmations()
    states = [pending.add_confirmation("subject", "word") for _ in range(101)]
    assert pending.pop_word(states[0], "subject") is None
    assert pending.pop_word(states[1], "subject") == "word"


def test_a_client_that_cannot_ask_its_user_confirms_nothing() -> None:
    client = McpClient("silent", "2")
    refused = elicitor(PendingConfirmations(), {}, client).confirm("Merge it?", "subject")
    assert refused == NotConfirmed("silent 2 does not support questions to the user")


@pytest.mark.parametrize(
    ("capabilities", "can_elicit"),
    [
        ({"elicitation": {}}, True),
        ({"elicitation": {"form": {}}}, True),
        ({"elicitation": {"url": {}}}, False),
        ({"elicitation": True}, False),
        ({}, False),
        ([], False),
        (None, False),
    ],
)
def test_only_a_client_with_forms_can_ask(capabilities: object, can_elicit: bool) -> None:
    assert McpClient.from_client_info({}, capabilities).can_elicit is can_elicit


def test_the_name_of_a_client_is_one_short_line() -> None:
    info = {"name": "a\n  b" + "x" * 200, "version": 7}
    client = McpClient.from_client_info(info, {})
    assert (client.name, client.version) == ("a b" + "x" * 77, "")
    assert str(McpClient.from_client_info(["name"], {})) == "unknown"


@pytest.mark.parametrize("text", ["Merge it?\nfindings: none", "\x1b[2J\u202e\U000e0049 Merge it?"])
def test_a_question_shows_all_characters_that_an_agent_put_into_it(text: str) -> None:
    with pytest.raises(InputRequired) as raised:
        elicitor(PendingConfirmations(), {}).confirm(text, "subject")
    shown = str(raised.value.result["inputRequests"]["decision"]["params"]["message"])
    assert shown.replace("\n", "").isprintable()
    assert shown.startswith("Merge it?\nfindings: none\n\n") is text.isascii()
