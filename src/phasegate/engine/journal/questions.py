"""What agents ask people from inside their jobs, as the record has it.

`status` loads it, so it loads little.
"""

from __future__ import annotations

from typing import NamedTuple

from phasegate.core.display.status import ENDED_STAGE_NAMES
from phasegate.core.text.light_json import parse_json
from phasegate.storage.reader import StoreReader

QUESTION_ASKED = "question.asked"
QUESTION_ANSWERED = "question.answered"


class AgentQuestion(NamedTuple):
    """What an agent asks a person from inside its job.

    `answer` is None while nobody has answered.
    """

    id: str
    feature: str
    # Its package; empty for a job of the whole feature
    work: str
    job: str
    text: str
    options: tuple[str, ...]
    asked: str
    answer: str | None = None
    by: str = ""


def read_questions(reader: StoreReader, feature: str) -> tuple[AgentQuestion, ...]:
    """What agents of a feature have asked, with the answers, in the order of asking."""
    found: dict[str, AgentQuestion] = {}

    for recorded in reader.events_of_kinds(feature, QUESTION_ASKED, QUESTION_ANSWERED):
        said = parse_json(recorded.payload.decode("utf-8", "replace"))
        if not isinstance(said, dict):
            continue

        id_ = str(said.get("id", ""))
        if recorded.kind == QUESTION_ASKED:
            work, job, text = (str(said.get(name, "")) for name in ("work", "job", "text"))
            options = tuple(str(one) for one in said.get("options", ()))
            found[id_] = AgentQuestion(
                id=id_,
                feature=feature,
                work=work,
                job=job,
                text=text,
                options=options,
                asked=recorded.ts,
            )
        elif id_ in found:
            by = said.get("by")
            if isinstance(by, dict):
                person = str(by.get("person", ""))
            else:
                person = ""

            found[id_] = found[id_]._replace(answer=str(said.get("text", "")), by=person)

    return tuple(found.values())


def read_open_questions(reader: StoreReader, feature: str) -> tuple[AgentQuestion, ...]:
    """Those that nobody has answered."""
    return tuple(one for one in read_questions(reader, feature) if one.answer is None)


def read_all_open_questions(reader: StoreReader) -> tuple[AgentQuestion, ...]:
    """The open questions of every feature that has not ended, with a workflow or without."""
    ended = {row.feature for row in reader.workflows() if row.stage in ENDED_STAGE_NAMES}
    return tuple(
        one
        for slug in reader.features()
        if slug not in ended
        for one in read_open_questions(reader, slug)
    )
