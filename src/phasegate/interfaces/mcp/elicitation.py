"""A decision is a person's: it is asked for through the client, and an answer that no person gave is none.

The question tells a word that the person types. The word is in no result of ours, so an agent does not know it, and a
client that accepts by itself does not give it.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from threading import Lock
from typing import NamedTuple

from phasegate.interfaces.mcp.jsonrpc import Call, Fields

_WORDS = (
    *("amber", "anchor", "autumn", "basil", "beacon", "birch", "canyon", "cedar", "cobalt", "copper", "coral"),
    *("delta", "ember", "falcon", "fjord", "garnet", "ginger", "harbor", "hazel", "indigo", "ivory", "jasper"),
    *("lagoon", "lantern", "linen", "maple", "marble", "meadow", "nutmeg", "ocean", "olive", "onyx", "opal"),
    *("orchid", "pebble", "pepper", "quartz", "raven", "saffron", "sierra", "silver", "tulip", "velvet", "willow"),
)
_MOST_OPEN = 100
_ANSWER = "decision"


class McpPeer(NamedTuple):
    """The program at the other end."""

    name: str = "unknown"
    version: str = ""
    can_ask: bool = False  # it can put a form before its person
    is_modern: bool = False

    @classmethod
    def of(cls, about: object, abilities: object, *, is_modern: bool = False) -> McpPeer:
        told = about if isinstance(about, dict) else {}
        can = abilities.get("elicitation") if isinstance(abilities, dict) else None
        # An empty object means forms, as in the first version that had them.
        can_ask = isinstance(can, dict) and ("form" in can or not can)
        return cls(_short(told.get("name")) or "unknown", _short(told.get("version")), can_ask, is_modern)

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


def _short(text: object) -> str:
    return " ".join(text.split())[:80] if isinstance(text, str) else ""


class Unasked(NamedTuple):
    """Why there is no decision."""

    reason: str


class InputRequired(Exception):
    """The call ends with a question; the client calls again with the answer."""

    def __init__(self, result: Fields) -> None:
        super().__init__("input is required")
        self.result = result


class OpenQuestions:
    """Questions that were asked by ending a call, each good for one answer to the same call."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, tuple[object, str]] = OrderedDict()
        self._lock = Lock()

    def keep(self, about: object, word: str) -> str:
        state = secrets.token_urlsafe(24)
        with self._lock:
            self._open[state] = (about, word)
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
        return state

    def take(self, state: object, about: object) -> str | None:
        """The word of the question that was asked about exactly this; None if none was."""
        with self._lock:
            asked, word = self._open.pop(state, (None, "")) if isinstance(state, str) else (None, "")
        return word if asked is not None and asked == about else None


class Question:
    """The way to the person behind one call."""

    def __init__(self, call: Call, client: McpPeer, states: OpenQuestions) -> None:
        self.call, self.client, self._states = call, client, states

    def confirm(self, text: str, about: object) -> Unasked | None:
        """Ask the person to confirm; None if they did. `about` is what they confirm: another answer does not count."""
        if not self.client.can_ask:
            return Unasked(f"{self.client} cannot ask a person")
        if self.client.is_modern:
            return self._by_ending(text, about)
        word = secrets.choice(_WORDS)
        return _judged(self.call.ask("elicitation/create", _form(text, word)), word)

    def _by_ending(self, text: str, about: object) -> Unasked | None:
        answers = self.call.params.get("inputResponses")
        if not isinstance(answers, dict):
            word = secrets.choice(_WORDS)
            request = {"method": "elicitation/create", "params": _form(text, word)}
            asked: Fields = {
                "resultType": "input_required",
                "inputRequests": {_ANSWER: request},
                "requestState": self._states.keep(about, word),
            }
            raise InputRequired(asked)
        found = self._states.take(self.call.params.get("requestState"), about)
        return (
            Unasked("the answer is to no question of ours") if found is None else _judged(answers.get(_ANSWER), found)
        )


def _form(text: str, word: str) -> Fields:
    field = {"type": "string", "title": f'Type "{word}" to confirm', "maxLength": 40}
    schema = {"type": "object", "properties": {"confirm": field}, "required": ["confirm"]}
    return {"mode": "form", "message": f'{text}\n\nType "{word}" to confirm.', "requestedSchema": schema}


def _judged(answer: object, word: str) -> Unasked | None:
    if not isinstance(answer, dict) or answer.get("action") != "accept":
        said = answer.get("action") if isinstance(answer, dict) else None
        return Unasked(f"the answer was {said}" if said in ("decline", "cancel") else "there was no answer")
    content = answer.get("content")
    given = content.get("confirm") if isinstance(content, dict) else None
    is_right = isinstance(given, str) and given.strip().lower().strip("\"'") == word
    return None if is_right else Unasked("the word was not given: no person has read the question")
