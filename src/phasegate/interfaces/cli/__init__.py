"""The command line: one table of commands, each loaded only when it is called."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import click

from phasegate.errors import EnvironmentUnavailable, PhasegateError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# name -> (module below this package, object in it, help line). The help page shows the lines
# without loading any.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "advance": ("workflow", "advance", "Move on to the next phase after a passed gate."),
    "agent-file": (
        "agent_file",
        "agent_file",
        "List, copy and fix agent files and their prompt sections.",
    ),
    "agents": (
        "agents",
        "agents",
        "Show which agents can be started here and what they lack; try one.",
    ),
    "answer": (
        "answer",
        "answer",
        "Answer the question of an agent; or read what an agent's answer says.",
    ),
    "artifact": ("artifact", "artifact", "Write, read and list the artifacts of a feature."),
    "ask": ("answer", "ask", "Ask a person, from inside a job."),
    "audit": (
        "audit",
        "audit",
        "Show the audit trails, and verify that nothing in them was changed.",
    ),
    "back": ("workflow", "back", "Take a feature back to an earlier phase, with the reason."),
    "block": ("block", "block", "Check a SUGGESTED NEXT STEPS or STATUS block."),
    "board": ("board", "board", "Serve a board for the browser, on this machine only."),
    "cancel": ("workflow", "cancel", "End the workflow without a merge; its branches are kept."),
    "check": (
        "check",
        "check",
        "Set the project up and run all checks on the base, without an agent.",
    ),
    "complete": ("workflow", "complete", "Archive the feature and merge it, after its last gate."),
    "completion": (
        "completion",
        "completion",
        "Print the completion script for bash, zsh or fish.",
    ),
    "config": (
        "config",
        "config",
        "Show the configuration in effect, and where each value comes from.",
    ),
    "demo": ("demo", "demo", "Show the product at work in a throw-away folder."),
    "discover": (
        "discover",
        "discover",
        "Let an agent find out how the project is set up and tested; keep what holds.",
    ),
    "dispatch": (
        "dispatch",
        "dispatch",
        "Carry a work package through implementation, checks, review and merge.",
    ),
    "escalate": ("workflow", "escalate", "Stop the workflow for a person."),
    "fleet": (
        "fleet",
        "fleet",
        "Try a fleet on one machine, see what it lacks, begin its features again.",
    ),
    "gate": ("workflow", "gate", "Check the gate of the current phase now."),
    "hook": ("hook", "hook", "Put `phasegate next` into an agent's own hooks, or take it out."),
    "init": ("init", "init", "Prepare this repository: settings, project description."),
    "mcp": ("mcp", "mcp", "Serve this repository to an agent program, by MCP on stdio."),
    "next": ("next", "next_", "Print the suggested next steps, and nothing else."),
    "notify": (
        "notify",
        "notify",
        "Try who would be told when a person is needed or a run has ended.",
    ),
    "otel": (
        "otel",
        "otel",
        "Give spans and measures of the record to an OpenTelemetry collector.",
    ),
    "package": ("package", "package", "List the work packages of a feature, or show one."),
    "plan": (
        "plan",
        "plan",
        "Load a feature's work packages, and show how they depend on each other.",
    ),
    "prompt": ("prompt", "prompt", "Show the exact prompt that an agent would be sent."),
    "report": ("report", "report", "Write one page about a feature, to keep beside its merge."),
    "resolve": ("workflow", "resolve", "Say how a blocker was resolved."),
    "retry": ("workflow", "retry", "Start another round of the phase after a failed gate."),
    "run": ("run", "run", "Start a workflow, or continue one, until it needs you."),
    "scope": ("scope", "scope", "Record an exception to the file scope of a work package."),
    "show": (
        "show",
        "show_subject",
        "Show a package, a phase or a job: its diff, prompt, log, answer, evidence.",
    ),
    "spec": ("spec", "spec", "Check a specification, its tasks and its work packages."),
    "start": ("run", "start", "Start a workflow without running anything yet."),
    "status": ("status", "status", "Show where things stand."),
    "stop": ("run", "stop", "End a run, wherever it was started."),
    "sync": ("sync", "sync", "Look once at the pull requests: remarks, approvals, merges."),
    "template": (
        "template",
        "template",
        "List, show, lint, describe and copy system prompt templates.",
    ),
    "trace": ("trace", "trace", "Show each requirement with its packages, commits and tests."),
    "worker": ("fleet", "worker", "Carry out features of a fleet in this clone."),
    "worktree": (
        "worktree",
        "worktree",
        "List the work packages that are ready, and their worktrees.",
    ),
}


# Set by the script of `completion`
COMPLETION_VARIABLE = "_PHASEGATE_COMPLETE"
# The help page, most wanted first. What is in no section is listed as a tool.
SECTIONS = {
    "A feature": ("init", "run", "status", "stop", "resolve", "back", "complete", "cancel"),
    "Step by step": ("start", "gate", "advance", "retry", "escalate", "dispatch", "sync"),
    "Look": (
        "show",
        "board",
        "report",
        "next",
        "plan",
        "package",
        "trace",
        "audit",
        "artifact",
        "worktree",
        "demo",
    ),
    "Set up": (
        "check",
        "discover",
        "agents",
        "config",
        "hook",
        "mcp",
        "notify",
        "otel",
        "scope",
        "worker",
        "fleet",
        "completion",
    ),
}
TOOLS_SECTION = "Tools for those who write prompts, specifications and agents"


class LazyGroup(click.Group):
    """A group that knows its commands by name and loads one when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, name, _ = entry
        command: click.Command = getattr(import_module(f"{__name__}.{module}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command '{args[0]}'.{_suggest_command(args[0])}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completion from the table: a key press must not load every command."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=COMMANDS[name][2]) for name in names), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        placed = {name for names in SECTIONS.values() for name in names}
        tools = tuple(name for name in self.list_commands(ctx) if name not in placed)
        for title, names in (*SECTIONS.items(), (TOOLS_SECTION, tools)):
            with formatter.section(title):
                formatter.write_dl([(name, COMMANDS[name][2]) for name in names])


def _suggest_command(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, COMMANDS, n=1)
    if close:
        return f" Did you mean '{close[0]}'?"
    return ""


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="phasegate", message="phasegate %(version)s")
@click.option(
    "-v", "--verbose", is_flag=True, help="Tell more on stderr, such as a template used instead."
)
@click.pass_context
def app(ctx: click.Context, verbose: bool) -> int | None:
    """Take a feature through phases and gates, carried out by coding agents and decided by
    evidence.
    """
    if verbose:
        import logging

        logging.basicConfig(format="phasegate: %(message)s")
        logging.getLogger("phasegate").setLevel(logging.DEBUG)

    if ctx.invoked_subcommand is not None:
        return None

    from phasegate.interfaces.cli import menu

    if menu.is_interactive():
        return menu.show_menu()

    click.echo(ctx.get_help())
    return None


def run_command(arguments: list[str]) -> int:
    """Run one command and turn its end into an exit code.

    0 done, 1 the answer is no, 2 to 4 an error, 70 our fault.
    """
    try:
        result = _invoke(arguments)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        show_usage_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        # Ends the line of the terminal's ^C
        print(file=sys.stderr)
        return 130
    except PhasegateError as error:
        show_error(error)
        return error.exit_code
    except BrokenPipeError:
        return _handle_broken_pipe()
    except OSError as error:
        if error.errno in _DISK_ERRNOS:
            return _report_disk_error(error)
        return _report_internal_error(error)
    except Exception as error:
        return _report_internal_error(error)

    if isinstance(result, int):
        return result
    return 0


def _invoke(arguments: list[str]) -> object:
    """What the command returns.

    Not by click's `main`: that makes a failure of a reader that has gone.
    """
    if COMPLETION_VARIABLE in os.environ:
        return app.main(
            args=arguments,
            prog_name="phasegate",
            complete_var=COMPLETION_VARIABLE,
            standalone_mode=False,
        )

    with app.make_context("phasegate", [*arguments]) as context:
        return app.invoke(context)


def _handle_broken_pipe() -> int:
    """`phasegate ... | head` is no error."""
    _discard_output()
    return 0


def _discard_output() -> None:
    """What is still buffered goes nowhere.

    The interpreter flushes stdout at its end, and would complain.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


_DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)


def _report_disk_error(error: OSError) -> int:
    """Whatever was to be written, stdout included, the machine has no room for it, or cannot write."""
    _discard_output()
    unavailable = EnvironmentUnavailable(
        f"cannot write{f' {error.filename}' if error.filename else ''}: {error.strerror}",
        "check the disk (space, errors, permissions), or send the output elsewhere; then run again",
    )
    show_error(unavailable)

    return unavailable.exit_code


def show_usage_error(error: click.ClickException) -> None:
    """Say what is wrong with the arguments, on stderr; what was typed may hold escape sequences."""
    from io import StringIO

    from phasegate.interfaces.cli.render import make_printable

    error.show(file=(shown := StringIO()))
    for line in shown.getvalue().removesuffix("\n").split("\n"):
        print(make_printable(line.expandtabs(4)), file=sys.stderr)

    if "unexpected extra argument" in error.format_message() and _takes_free_text(error):
        print("  hint: put what has several words in quotes", file=sys.stderr)


def _takes_free_text(error: click.ClickException) -> bool:
    from phasegate.interfaces.cli.render import FreeText

    if isinstance(error, click.UsageError):
        context = error.ctx
    else:
        context = None

    return context is not None and any(
        isinstance(one.type, FreeText) for one in context.command.params
    )


def _report_internal_error(error: Exception) -> int:
    """Keep the traceback in a file of its own and tell the person in one line where it is."""
    from tempfile import NamedTemporaryFile
    from traceback import format_exception

    from phasegate import __version__

    with NamedTemporaryFile("w", prefix="phasegate-report-", suffix=".txt", delete=False) as report:
        report.write(
            f"phasegate {__version__}, Python {sys.version}\n\n{''.join(format_exception(error))}"
        )

    print(
        f"phasegate: internal error ({type(error).__name__}); report saved to {report.name}",
        file=sys.stderr,
    )
    return 70


def show_error(error: PhasegateError) -> None:
    """Say what happened and what to do next, on stderr; a message may hold names from outside."""
    from phasegate.interfaces.cli.render import make_printable

    if error.hint:
        hint = f"\n  hint: {make_printable(error.hint)}"
    else:
        hint = ""

    # Where nobody can be told, the exit code still says it
    with suppress(OSError):
        print(f"phasegate: {make_printable(error.message)}{hint}", file=sys.stderr, flush=True)
