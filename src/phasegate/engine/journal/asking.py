"""Questions of agents and answers of people: both on record, whoever looks and however late."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from phasegate.core.workflow.origin import By
from phasegate.engine.journal.entries import AskedQuestion, GivenAnswer
from phasegate.engine.journal.questions import ANSWERED, ASKED, AgentQuestion, open_questions, questions_of
from phasegate.engine.project.ports import RecordReader
from phasegate.engine.project.project import Project
from phasegate.engine.project.secrets import lent_keys
from phasegate.errors import ConfigError, MovedOn, StateConflict
from phasegate.storage.reader import Reader
from phasegate.storage.record import WritableRecord
from phasegate.storage.rows import Event
from phasegate.typed import read_json

LONGEST_TEXT, LONGEST_OPTION, MOST_OPTIONS, MOST_OPEN = 4_000, 200, 8, 20


def ask(
    project: Project, store: WritableRecord, feature: str, work: str, job: str, text: str, options: Sequence[str]
) -> str:
    """Put a question of an agent on record; its id."""
    text = text.strip()
    if not text or len(text) > LONGEST_TEXT:
        raise ConfigError(f"a question has 1 to {LONGEST_TEXT} characters", "ask one thing, in plain words")
    if len(options) > MOST_OPTIONS or any(not 0 < len(one.strip()) <= LONGEST_OPTION for one in options):
        raise ConfigError(f"at most {MOST_OPTIONS} options of 1 to {LONGEST_OPTION} characters", "leave some out")
    if lent_keys(project).are_in("\n".join((text, *options)).encode("utf-8", "replace")):
        raise ConfigError("it holds a key that was lent to this job", "take it out, and ask again")
    if len(open_questions(store, feature)) >= MOST_OPEN:
        raise ConfigError(f"{MOST_OPEN} questions of {feature} are open", "decide yourself, and say so")
    asked = AskedQuestion(project.clock.new_id()[:8], job, work, text, tuple(options))
    store.append_now(feature, project.now(), [Event(ASKED, msgspec.json.encode(asked))])
    return asked.id


def find_question(reader: Reader, wanted: str, feature: str | None = None) -> AgentQuestion:
    """The question of that id; the beginning of it is enough if only one begins so."""
    slugs = [slug for slug in reader.features() if feature in (None, slug)]
    found = [one for slug in slugs for one in questions_of(reader, slug) if wanted and one.id.startswith(wanted)]
    if len(found) != 1:
        why = "several questions begin" if found else "no question begins"
        raise ConfigError(f"{why} with {wanted!r}", "phasegate status lists the open ones")
    return found[0]


def answer(
    project: Project, store: WritableRecord, wanted: str, text: str, by: By, feature: str | None = None
) -> AgentQuestion:
    """Answer a question, once. Its agent gets the answer if it still waits, else the next one in its place does."""
    text = text.strip()
    if not text or len(text) > LONGEST_TEXT:
        raise ConfigError(f"an answer has 1 to {LONGEST_TEXT} characters", 'phasegate answer QUESTION "..."')
    while True:
        question = find_question(store, wanted, feature)
        seq = store.seq(question.feature)
        question = find_question(store, question.id, question.feature)
        if question.answer is not None:
            raise StateConflict(f"{question.id} was answered before: {question.answer}", "phasegate status")
        given = Event(ANSWERED, msgspec.json.encode(GivenAnswer(question.id, text, by)))
        try:
            store.append(question.feature, seq, project.now(), [given])
        except MovedOn:
            continue
        return question._replace(answer=text, by=by.person)


def answers_for(record: RecordReader, feature: str, work: str) -> tuple[str, ...]:
    """What people answered to the agents of a package, or (empty) of the feature itself: for those that come after."""
    asked: dict[str, AskedQuestion] = {}
    told: list[str] = []
    for recorded in record.events(feature):
        if recorded.kind == ASKED:
            question = read_json(recorded.payload, AskedQuestion)
            asked[question.id] = question
        elif recorded.kind == ANSWERED:
            given = read_json(recorded.payload, GivenAnswer)
            if (found := asked.get(given.id)) and found.work == work:
                told.append(f"Asked: {found.text}\nAnswered: {given.text}")
    return tuple(told)
