"""A decision is a person's: it is asked for through the client, and an answer that no person gave is none.

The question tells a word that the person types. The word is in no result of ours, so an agent does not know it, and a
client that accepts by itself does not give it.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from threading import Lock
from typing import NamedTuple

from phasegate.interfaces.mcp.jsonrpc import Call, JsonObject

_WORDS = (
    *("amber", "anchor", "autumn", "basil", "beacon", "birch", "canyon", "cedar", "cobalt", "copper", "coral"),
    *("delta", "ember", "falcon", "fjord", "garnet", "ginger", "harbor", "hazel", "indigo", "ivory", "jasper"),
    *("lagoon", "lantern", "linen", "maple", "marble", "meadow", "nutmeg", "ocean", "olive", "onyx", "opal"),
    *("orchid", "pebble", "pepper", "quartz", "raven", "saffron", "sierra", "silver", "tulip", "velvet", "willow"),
)
_MAX_PENDING = 100
_ANSWER_KEY = "decision"


class McpClient(NamedTuple):
    """The program at the other end."""

    name: str = "unknown"
    version: str = ""
    can_elicit: bool = False  # it can put a form before its person
    is_modern: bool = False

    @classmethod
    def from_client_info(cls, client_info: object, capabilities: object, *, is_modern: bool = False) -> McpClient:
        told = client_info if isinstance(client_info, dict) else {}
        can = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
        # An empty object means forms, as in the first version that had them.
        can_ask = isinstance(can, dict) and ("form" in can or not can)
        return cls(
            _normalize_text(told.get("name")) or "unknown", _normalize_text(told.get("version")), can_ask, is_modern
        )

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


def _normalize_text(text: object) -> str:
    return " ".join(text.split())[:80] if isinstance(text, str) else ""


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
            asked, word = self._pending.pop(state, (None, "")) if isinstance(state, str) else (None, "")
        return word if asked is not None and asked == subject else None


class Elicitor:
    """The way to the person behind one call."""

    def __init__(self, call: Call, client: McpClient, pending: PendingConfirmations) -> None:
        self.call, self.client, self._pending = call, client, pending

    def confirm(self, text: str, subject: object) -> NotConfirmed | None:
        """Ask the person to confirm; None if they did. `about` is what they confirm: another answer does not count."""
        if not self.client.can_elicit:
            return NotConfirmed(f"{self.client} cannot ask a person")
        if self.client.is_modern:
            return self._confirm_by_retry(text, subject)
        word = secrets.choice(_WORDS)
        return _check_answer(self.call.send_request("elicitation/create", _build_form(text, word)), word)

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
        return (
            NotConfirmed("the answer is to no question of ours")
            if found is None
            else _check_answer(answers.get(_ANSWER_KEY), found)
        )


def _build_form(text: str, word: str) -> JsonObject:
    field = {"type": "string", "title": f'Type "{word}" to confirm', "maxLength": 40}
    schema = {"type": "object", "properties": {"confirm": field}, "required": ["confirm"]}
    return {"mode": "form", "message": f'{text}\n\nType "{word}" to confirm.', "requestedSchema": schema}


def _check_answer(answer: object, word: str) -> NotConfirmed | None:
    if not isinstance(answer, dict) or answer.get("action") != "accept":
        said = answer.get("action") if isinstance(answer, dict) else None
        return NotConfirmed(f"the answer was {said}" if said in ("decline", "cancel") else "there was no answer")
    content = answer.get("content")
    given = content.get("confirm") if isinstance(content, dict) else None
    is_right = isinstance(given, str) and given.strip().lower().strip("\"'") == word
    return None if is_right else NotConfirmed("the word was not given: no person has read the question")
