"""`answer QUESTION "..."`: a person's answer to an agent.

`answer parse`: what the parser makes of an agent's.
"""

from __future__ import annotations

import click

from phasegate.core.answer.parse import parse_answer
from phasegate.core.answer.vocabulary import ALLOWED_VERDICTS
from phasegate.engine.journal.asking import answer_question as answer_question
from phasegate.engine.project.project import open_project, open_project_store
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.options import feature_option
from phasegate.interfaces.cli.render import (
    FreeText,
    current_folder,
    json_option,
    print_result,
    read_input,
)


class AnswerGroup(Group):
    """A word that is no command of its own is a question: `answer QUESTION "..."`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        is_question = args and args[0] not in self.commands and not args[0].startswith("-")
        return super().resolve_command(ctx, ["give", *args] if is_question else args)


@click.group(cls=AnswerGroup)
def answer() -> None:
    """Answer the question of an agent; or read an agent's answer.

    \b
    Examples:
      phasegate answer 3a6b8c9d "Use the existing table"
      printf 'All tests pass.\\n<review>PASS</review>\\n' | phasegate answer parse --phase review
    """


@click.command()
@click.argument("text", type=FreeText())
@click.option(
    "--option", multiple=True, metavar="TEXT", help="An answer that it offers; several times."
)
@click.option("--no-wait", is_flag=True, help="Do not wait: the answer is for whoever comes next.")
def ask(text: str, option: tuple[str, ...], no_wait: bool) -> None:
    """Ask a person, from inside a job. The agent that asks waits for the answer, then decides itself and says so.

    \b
    Example:
      phasegate ask "Which table?" --option "the existing one" --option "a new one"
    """
    raise ConfigError(
        "there is no job here to ask for",
        "agents ask inside their jobs; people answer: phasegate answer",
    )


@answer.command()
@click.argument("question")
@click.argument("text", type=FreeText())
@feature_option
@json_option
def give(question: str, text: str, feature: str | None, as_json: bool) -> None:
    """Answer QUESTION, as `status` lists it. Its agent gets the answer if it still waits, else the next one does.

    \b
    Examples:
      phasegate answer give 3a6b8c9d "Use the existing table"
      phasegate answer 3a6b8c9d "Use the existing table"
    """
    project = open_project(current_folder())
    with open_project_store(project) as store:
        found = answer_question(project, store, question, text, project.make_origin("cli"), feature)

    print_result(found, f"{found.feature}: answered {found.id}", as_json)


@answer.command()
@click.option(
    "--phase",
    required=True,
    type=click.Choice([*ALLOWED_VERDICTS]),
    help="The phase that the answer belongs to.",
)
@click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    help="Changes nothing: the output is always one JSON object.",
)
@click.argument("source", metavar="[FILE|-]", default="-")
def parse(phase: str, source: str) -> int:
    """Print what an answer says as one JSON object.

    The answer is read from FILE, or from stdin. Its fields: verdict, error (and the reason in words), task_statuses,
    text (without thoughts and escape sequences), result and response (as given, and typed), result_error, blockers,
    block, truncated, warnings. Exit code 1 means that the answer is refused: error says why.

    \b
    Example:
      printf 'All tests pass.\\n<review>PASS</review>\\n' | phasegate answer parse --phase review
    """
    parsed = parse_answer(read_input(source).decode("utf-8", "replace"), phase)
    print_result(parsed, "", as_json=True)
    if parsed.error:
        return 1

    return 0
