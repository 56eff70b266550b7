"""Elicitation: asks the user for a confirmation through the client.

The question contains a word that the user must type. The word is in no result, so an agent does
not know it, and a client that accepts on its own does not send it.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from threading import Lock
from typing import NamedTuple

from phasegate.core.text.visible import escape_unprintable
from phasegate.interfaces.mcp.jsonrpc import Call, JsonObject

_WORDS = (  # noqa: SIM905 - 44 words are easier to read as text
    "amber anchor autumn basil beacon birch canyon cedar cobalt copper coral "
    "delta ember falcon fjord garnet ginger harbor hazel indigo ivory jasper "
    "lagoon lantern linen maple marble meadow nutmeg ocean olive onyx opal "
    "orchid pebble pepper quartz raven saffron sierra silver tulip velvet willow "
).split()
_MAX_PENDING = 100
_ANSWER_KEY = "decision"


class McpClient(NamedTuple):
    """The client program."""

    name: str = "unknown"
    version: str = ""
    # can show a form to its user
    can_elicit: bool = False
    is_modern: bool = False

    @classmethod
    def from_client_info(
        cls, client_info: object, capabilities: object, *, is_modern: bool = False
    ) -> McpClient:
        """Read the name, version and capabilities that a client reports; malformed values count as
        absent.
        """
        info = client_info if isinstance(client_info, dict) else {}
        elicitation = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
        return cls(
            name=_normalize_text(info.get("name")) or "unknown",
            version=_normalize_text(info.get("version")),
            # An empty object means forms, as in the first version of the protocol that had them
            can_elicit=isinstance(elicitation, dict) and ("form" in elicitation or not elicitation),
            is_modern=is_modern,
        )

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


def _normalize_text(text: object) -> str:
    return " ".join(text.split())[:80] if isinstance(text, str) else ""


class NotConfirmed(NamedTuple):
    """Why the user did not confirm."""

    reason: str


class InputRequired(Exception):
    """Ends a call with a question; the client repeats the call with the answer."""

    def __init__(self, result: JsonObject) -> None:
        super().__init__("input is required")
        self.result = result


class PendingConfirmations:
    """Questions that ended a call. Each is valid for one answer to the same call."""

    def __init__(self) -> None:
        self._pending: OrderedDict[str, tuple[object, str]] = OrderedDict()
        self._lock = Lock()

    def add_confirmation(self, subject: object, word: str) -> str:
        """Remember the word for a subject; return the state that the client sends back."""
        state = secrets.token_urlsafe(24)
        with self._lock:
            self._pending[state] = (subject, word)
            while len(self._pending) > _MAX_PENDING:
                self._pending.popitem(last=False)

        return state

    def pop_word(self, state: object, subject: object) -> str | None:
        """Return the word of the question about exactly this subject, or None if there was none."""
        if not isinstance(state, str):
            return None

        with self._lock:
            asked, word = self._pending.pop(state, (None, ""))

        return word if asked is not None and asked == subject else None


class Elicitor(NamedTuple):
    """Asks the user of the client that made one call."""

    call: Call
    client: McpClient
    pending: PendingConfirmations

    def confirm(self, text: str, subject: object) -> NotConfirmed | None:
        """Ask the user to confirm; return None if they did.

        `subject` identifies the confirmed action: an answer about another subject does not count.
        """
        if not self.client.can_elicit:
            return NotConfirmed(f"{self.client} does not support questions to the user")
        if self.client.is_modern:
            return self._confirm_by_retry(text, subject)

        word = secrets.choice(_WORDS)
        return _check_answer(
            self.call.send_request("elicitation/create", _build_form(text, word)), word
        )

    def _confirm_by_retry(self, text: str, subject: object) -> NotConfirmed | None:
        """Request a confirmation word, then check the retried call's answer."""
        answers = self.call.params.get("inputResponses")
        if not isinstance(answers, dict):
            word = secrets.choice(_WORDS)
            request = {"method": "elicitation/create", "params": _build_form(text, word)}
            raise InputRequired(
                {
                    "resultType": "input_required",
                    "inputRequests": {_ANSWER_KEY: request},
                    "requestState": self.pending.add_confirmation(subject, word),
                }
            )

        expected = self.pending.pop_word(self.call.params.get("requestState"), subject)
        if expected is None:
            return NotConfirmed("the answer does not belong to an open question")

        return _check_answer(answers.get(_ANSWER_KEY), expected)


def _build_form(text: str, word: str) -> JsonObject:
    # Agents wrote parts of it
    shown = escape_unprintable(text, keep="\n")
    field = {"type": "string", "title": f'Type "{word}" to confirm', "maxLength": 40}
    schema = {"type": "object", "properties": {"confirm": field}, "required": ["confirm"]}
    return {
        "mode": "form",
        "message": f'{shown}\n\nType "{word}" to confirm.',
        "requestedSchema": schema,
    }


def _check_answer(answer: object, word: str) -> NotConfirmed | None:
    """Return why an answer does not confirm, or None if it has the word."""
    action = answer.get("action") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or action != "accept":
        if action in ("decline", "cancel"):
            return NotConfirmed(f"the answer was {action}")
        return NotConfirmed("there was no answer")

    content = answer.get("content")
    typed = content.get("confirm") if isinstance(content, dict) else None
    if isinstance(typed, str) and typed.strip().lower().strip("\"'") == word:
        return None

    return NotConfirmed("the confirmation word was not typed, so no user has read the question")
