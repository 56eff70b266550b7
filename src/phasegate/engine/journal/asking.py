"""Record the questions of agents and the answers of the user."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from phasegate.core.workflow.origin import OrderOrigin
from phasegate.engine.journal.entries import AskedQuestion, GivenAnswer
from phasegate.engine.journal.questions import (
    QUESTION_ANSWERED,
    QUESTION_ASKED,
    AgentQuestion,
    list_answer_commands,
    read_open_questions,
    read_questions,
)
from phasegate.engine.project.project import Project
from phasegate.engine.project.secrets import collect_lent_secrets
from phasegate.errors import ConfigError, MovedOn, StateConflict
from phasegate.storage.reader import StoreReader
from phasegate.storage.record import WritableStore
from phasegate.storage.rows import NewEvent

MAX_TEXT_CHARS = 4_000
MAX_OPTION_CHARS = 200
MAX_OPTIONS = 8
MAX_OPEN_QUESTIONS = 20


def ask_question(
    project: Project,
    store: WritableStore,
    feature: str,
    work: str,
    job: str,
    text: str,
    options: Sequence[str],
) -> str:
    """Record a question of an agent; return its id."""
    text = text.strip()
    if not text or len(text) > MAX_TEXT_CHARS:
        raise ConfigError(
            f"a question must have 1 to {MAX_TEXT_CHARS} characters", "ask one short question"
        )

    if len(options) > MAX_OPTIONS or any(
        not 0 < len(one.strip()) <= MAX_OPTION_CHARS for one in options
    ):
        raise ConfigError(
            f"at most {MAX_OPTIONS} options of 1 to {MAX_OPTION_CHARS} characters", "shorten them"
        )

    if collect_lent_secrets(project).has_secret(
        "\n".join((text, *options)).encode("utf-8", "replace")
    ):
        raise ConfigError("it contains a secret of this job", "remove the secret, then ask again")

    if len(read_open_questions(store, feature)) >= MAX_OPEN_QUESTIONS:
        raise ConfigError(
            f"{MAX_OPEN_QUESTIONS} questions of {feature} are open", "decide yourself and report it"
        )

    asked = AskedQuestion(
        id=project.clock.new_id()[:8], job=job, work=work, text=text, options=tuple(options)
    )
    store.append_unconditionally(
        feature, project.now(), [NewEvent(QUESTION_ASKED, msgspec.json.encode(asked))]
    )

    return asked.id


def find_question(reader: StoreReader, id_prefix: str, feature: str | None = None) -> AgentQuestion:
    """Return the question whose id starts with a prefix; refuse an ambiguous prefix."""
    slugs = [slug for slug in reader.features() if feature in (None, slug)]
    matches = [
        question
        for slug in slugs
        for question in read_questions(reader, slug)
        if id_prefix and question.id.startswith(id_prefix)
    ]

    if len(matches) != 1:
        problem = "several questions start" if matches else "no question starts"
        raise ConfigError(f"{problem} with {id_prefix!r}", "phasegate status lists the open ones")

    return matches[0]


def answer_question(
    project: Project,
    store: WritableStore,
    id_prefix: str,
    text: str,
    by: OrderOrigin,
    feature: str | None = None,
    *,
    allow_other: bool = True,
) -> AgentQuestion:
    """Record the answer to a question that is not answered yet.

    The agent receives it if it still waits; otherwise the next job of the same work does.
    `allow_other` False refuses an answer that is not among the options of the question.
    """
    text = text.strip()
    if not text or len(text) > MAX_TEXT_CHARS:
        raise ConfigError(
            f"an answer must have 1 to {MAX_TEXT_CHARS} characters",
            'phasegate answer QUESTION "..."',
        )

    while True:
        question = find_question(store, id_prefix, feature)
        seq = store.last_seq(question.feature)
        question = find_question(store, question.id, question.feature)
        if question.answer is not None:
            raise StateConflict(
                f"{question.id} is already answered: {question.answer}", "phasegate status"
            )

        if question.options and text not in question.options and not allow_other:
            choices = ", or: ".join(
                list_answer_commands(question.id, question.options, question.feature)
            )
            raise ConfigError(
                f"{text!r} is not among the options of {question.id}",
                f"{choices}, or with --other in your own words",
            )

        event = NewEvent(QUESTION_ANSWERED, msgspec.json.encode(GivenAnswer(question.id, text, by)))
        try:
            store.append(question.feature, seq, project.now(), [event])
        except MovedOn:
            continue

        return question._replace(answer=text, by=by.person)
