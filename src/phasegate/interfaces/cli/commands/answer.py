"""`phasegate answer`: answer a question of an agent, or parse the answer of one."""

from __future__ import annotations

import click

from phasegate.core.answer.parse import parse_answer
from phasegate.core.answer.vocabulary import ALLOWED_VERDICTS
from phasegate.engine.fleet.entry import open_record
from phasegate.engine.journal.asking import answer_question
from phasegate.engine.project.project import open_project
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.options import feature_option, fleet_order_option
from phasegate.interfaces.cli.render import (
    FreeText,
    current_folder,
    json_option,
    print_result,
    read_input,
)


class AnswerGroup(Group):
    """A group that takes an unknown command as a question id: `answer QUESTION "..."`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        is_question = args and args[0] not in self.commands and not args[0].startswith("-")
        if is_question:
            args = ["give", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=AnswerGroup)
def answer() -> None:
    """Answer an agent's question, or parse an agent's answer.

    \b
    Examples:
      phasegate answer 3a6b8c9d "Use the existing table"
      printf 'All tests pass.\\n<review>PASS</review>\\n' | phasegate answer parse --phase review
    """


@click.command()
@click.argument("text", type=FreeText())
@click.option(
    "--option", multiple=True, metavar="TEXT", help="A suggested answer; can be repeated."
)
@click.option("--no-wait", is_flag=True, help="Do not wait: the answer goes to the next agent.")
def ask(text: str, option: tuple[str, ...], no_wait: bool) -> None:
    """Ask the user a question, from inside a job.

    The agent waits for the answer. Without one in time it decides itself and reports that.

    \b
    Example:
      phasegate ask "Which table?" --option "the existing one" --option "a new one"
    """
    raise ConfigError(
        "this command works only inside a job",
        "agents ask inside their jobs; to answer: phasegate answer",
    )


@answer.command()
@click.argument("question")
@click.argument("text", type=FreeText())
@click.option("--other", is_flag=True, help="Accept an answer that is not among the options.")
@feature_option
@fleet_order_option("The agent works on the fleet.")
@json_option
def give(
    question: str, text: str, other: bool, feature: str | None, fleet: bool, as_json: bool
) -> None:
    """Answer QUESTION, which is an id that `status` lists.

    The agent gets the answer if it is still waiting; otherwise the next agent does.

    \b
    Examples:
      phasegate answer give 3a6b8c9d "Use the existing table"
      phasegate answer 3a6b8c9d "Use the existing table"
    """
    project = open_project(current_folder())
    with open_record(project, fleet=fleet) as store:
        answered = answer_question(
            project,
            store,
            question,
            text,
            project.make_origin("cli"),
            feature,
            allow_other=other,
        )
        if fleet:
            # Makes the answer visible to the worker.
            store.anchor()

    print_result(answered, f"{answered.feature}: answered {answered.id}", as_json)


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
    help="No effect: the output is always one JSON object.",
)
@click.argument("source", metavar="[FILE|-]", default="-")
def parse(phase: str, source: str) -> int:
    """Parse an answer and print it as one JSON object.

    The answer is read from FILE, or from stdin. Fields: verdict, error and its reason,
    task_statuses, text (without thoughts and escape sequences), result and response (as given, and
    typed), result_error, blockers, block, truncated, warnings. Exit 1: the answer is refused; error
    says why.

    \b
    Example:
      printf 'All tests pass.\\n<review>PASS</review>\\n' | phasegate answer parse --phase review
    """
    parsed = parse_answer(read_input(source).decode("utf-8", "replace"), phase)
    print_result(parsed, "", as_json=True)
    if parsed.error:
        return 1

    return 0
