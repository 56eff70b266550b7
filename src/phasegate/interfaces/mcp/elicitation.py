"""A decision is a person's.

It is asked for through the client, and an answer that no person gave is none.

The question tells a word that the person types. The word is in no result of ours, so an agent does
not know it, and a client that accepts by itself does not give it.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from threading import Lock
from typing import NamedTuple

from phasegate.interfaces.mcp.jsonrpc import Call, JsonObject

_WORDS = (
    *(
        "amber",
        "anchor",
        "autumn",
        "basil",
        "beacon",
        "birch",
        "canyon",
        "cedar",
        "cobalt",
        "copper",
        "coral",
    ),
    *(
        "delta",
        "ember",
        "falcon",
        "fjord",
        "garnet",
        "ginger",
        "harbor",
        "hazel",
        "indigo",
        "ivory",
        "jasper",
    ),
    *(
        "lagoon",
        "lantern",
        "linen",
        "maple",
        "marble",
        "meadow",
        "nutmeg",
        "ocean",
        "olive",
        "onyx",
        "opal",
    ),
    *(
        "orchid",
        "pebble",
        "pepper",
        "quartz",
        "raven",
        "saffron",
        "sierra",
        "silver",
        "tulip",
        "velvet",
        "willow",
    ),
)
_MAX_PENDING = 100
_ANSWER_KEY = "decision"


class McpClient(NamedTuple):
    """The program at the other end."""

    name: str = "unknown"
    version: str = ""
    # It can put a form before its person
    can_elicit: bool = False
    is_modern: bool = False

    @classmethod
    def from_client_info(
        cls, client_info: object, capabilities: object, *, is_modern: bool = False
    ) -> McpClient:
        if isinstance(client_info, dict):
            told = client_info
        else:
            told = {}

        if isinstance(capabilities, dict):
            can = capabilities.get("elicitation")
        else:
            can = None

        # An empty object means forms, as in the first version that had them.
        can_ask = isinstance(can, dict) and ("form" in can or not can)
        return cls(
            _normalize_text(told.get("name")) or "unknown",
            _normalize_text(told.get("version")),
            can_ask,
            is_modern,
        )

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


def _normalize_text(text: object) -> str:
    if isinstance(text, str):
        return " ".join(text.split())[:80]
    return ""


class NotConfirmed(NamedTuple):
    """Why there is no decision."""

    reason: str


class InputRequired(Exception):
    """The call ends with a question; the client calls again with the answer."""

    def __init__(self, result: JsonObject) -> None:
        super().__init__("input is required")
        self.result = result


class PendingConfirmations:
    """Questions that were asked by ending a call, each good for one answer to the same call."""

    def __init__(self) -> None:
        self._pending: OrderedDict[str, tuple[object, str]] = OrderedDict()
        self._lock = Lock()

    def add_confirmation(self, subject: object, word: str) -> str:
        state = secrets.token_urlsafe(24)
        with self._lock:
            self._pending[state] = (subject, word)
            while len(self._pending) > _MAX_PENDING:
                self._pending.popitem(last=False)
        return state

    def pop_word(self, state: object, subject: object) -> str | None:
        """The word of the question that was asked about exactly this; None if none was."""
        with self._lock:
            if isinstance(state, str):
                asked, word = self._pending.pop(state, (None, ""))
            else:
                asked, word = (None, "")

        if asked is not None and asked == subject:
            return word
        return None


class Elicitor:
    """The way to the person behind one call."""

    def __init__(self, call: Call, client: McpClient, pending: PendingConfirmations) -> None:
        self.call = call
        self.client = client
        self._pending = pending

    def confirm(self, text: str, subject: object) -> NotConfirmed | None:
        """Ask the person to confirm; None if they did.

        `about` is what they confirm: another answer does not count.
        """
        if not self.client.can_elicit:
            return NotConfirmed(f"{self.client} cannot ask a person")
        if self.client.is_modern:
            return self._confirm_by_retry(text, subject)

        word = secrets.choice(_WORDS)
        return _check_answer(
            self.call.send_request("elicitation/create", _build_form(text, word)), word
        )

    def _confirm_by_retry(self, text: str, subject: object) -> NotConfirmed | None:
        answers = self.call.params.get("inputResponses")
        if not isinstance(answers, dict):
            word = secrets.choice(_WORDS)
            request = {"method": "elicitation/create", "params": _build_form(text, word)}
            asked: JsonObject = {
                "resultType": "input_required",
                "inputRequests": {_ANSWER_KEY: request},
                "requestState": self._pending.add_confirmation(subject, word),
            }
            raise InputRequired(asked)

        found = self._pending.pop_word(self.call.params.get("requestState"), subject)
        if found is None:
            return NotConfirmed("the answer is to no question of ours")

        return _check_answer(answers.get(_ANSWER_KEY), found)


def _build_form(text: str, word: str) -> JsonObject:
    field = {"type": "string", "title": f'Type "{word}" to confirm', "maxLength": 40}
    schema = {"type": "object", "properties": {"confirm": field}, "required": ["confirm"]}
    return {
        "mode": "form",
        "message": f'{text}\n\nType "{word}" to confirm.',
        "requestedSchema": schema,
    }


def _check_answer(answer: object, word: str) -> NotConfirmed | None:
    if not isinstance(answer, dict) or answer.get("action") != "accept":
        if isinstance(answer, dict):
            said = answer.get("action")
        else:
            said = None

        return NotConfirmed(
            f"the answer was {said}" if said in ("decline", "cancel") else "there was no answer"
        )

    content = answer.get("content")
    if isinstance(content, dict):
        given = content.get("confirm")
    else:
        given = None

    is_right = isinstance(given, str) and given.strip().lower().strip("\"'") == word
    if is_right:
        return None

    return NotConfirmed("the word was not given: no person has read the question")
