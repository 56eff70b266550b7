"""Read the questions of agents to the user from the record.

`phasegate status` imports this module, so it has few imports.
"""

from __future__ import annotations

from typing import NamedTuple

from phasegate.core.display.status import ENDED_STAGE_NAMES
from phasegate.core.text.light_json import parse_json
from phasegate.storage.reader import StoreReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

QUESTION_ASKED = "question.asked"
QUESTION_ANSWERED = "question.answered"
# Characters that a shell interprets between double quotes
_SHELL_CHARACTERS = frozenset('"$`\\!')


class AgentQuestion(NamedTuple):
    """A question of an agent to the user. `answer` is None until it is answered."""

    id: str
    feature: str
    # Package of the agent; empty for a job of the feature
    work: str
    job: str
    text: str
    options: tuple[str, ...]
    asked: str
    answer: str | None = None
    by: str = ""


def quote_for_shell(text: str) -> str:
    """Quote a text of an agent for a shell, so that a pasted command runs nothing of it."""
    if _SHELL_CHARACTERS.isdisjoint(text):
        return f'"{text}"'
    return "'" + text.replace("'", "'\\''") + "'"


def list_answer_commands(id_: str, options: Sequence[str], feature: str) -> list[str]:
    """Return the commands that answer a question, one for each option."""
    answers = [quote_for_shell(option) for option in options] or ['"..."']
    return [f"phasegate answer {id_} {answer} --feature {feature}" for answer in answers]


def read_questions(reader: StoreReader, feature: str) -> tuple[AgentQuestion, ...]:
    """Return the questions of a feature's agents with their answers, oldest first."""
    questions: dict[str, AgentQuestion] = {}

    for recorded in reader.events_of_kinds(feature, QUESTION_ASKED, QUESTION_ANSWERED):
        data = parse_json(recorded.payload.decode("utf-8", "replace"))
        if not isinstance(data, dict):
            continue

        id_ = str(data.get("id", ""))
        text = str(data.get("text", ""))
        if recorded.kind == QUESTION_ASKED:
            questions[id_] = AgentQuestion(
                id=id_,
                feature=feature,
                work=str(data.get("work", "")),
                job=str(data.get("job", "")),
                text=text,
                options=tuple(str(option) for option in data.get("options", ())),
                asked=recorded.ts,
            )
        elif id_ in questions:
            by = data.get("by")
            user = str(by.get("person", "")) if isinstance(by, dict) else ""
            questions[id_] = questions[id_]._replace(answer=text, by=user)

    return tuple(questions.values())


def read_open_questions(reader: StoreReader, feature: str) -> tuple[AgentQuestion, ...]:
    """Return the questions of a feature that are not answered."""
    return tuple(one for one in read_questions(reader, feature) if one.answer is None)


def read_all_open_questions(reader: StoreReader) -> tuple[AgentQuestion, ...]:
    """Return the open questions of all features that have not ended."""
    ended = {row.feature for row in reader.workflows() if row.stage in ENDED_STAGE_NAMES}
    return tuple(
        one
        for slug in reader.features()
        if slug not in ended
        for one in read_open_questions(reader, slug)
    )
