"""The command line: a table of commands, each imported only when it is called."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import click

from phasegate.errors import ConfigError, EnvironmentUnavailable, PhasegateError
from phasegate.interfaces.cli import commands
from phasegate.interfaces.cli.commands import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from click.shell_completion import CompletionItem

# Set by the completion scripts of click.
COMPLETION_VARIABLE = "_PHASEGATE_COMPLETE"
# The commands of the first help page. `help --all` lists all of them by topic.
MAIN_COMMANDS = (
    "init",
    "run",
    "status",
    "show",
    "resolve",
    "back",
    "complete",
    "cancel",
    "stop",
    "board",
    "check",
    "agents",
    "demo",
    "help",
)
# Sections of `help --all`. Commands in no section are listed as tools.
SECTIONS = {
    "Commands": MAIN_COMMANDS,
    "Single steps": (
        "start",
        "gate",
        "advance",
        "retry",
        "escalate",
        "amend",
        "dispatch",
        "sync",
    ),
    "Inspection": (
        "report",
        "next",
        "plan",
        "package",
        "trace",
        "drift",
        "audit",
        "receipt",
        "artifact",
        "worktree",
    ),
    "Setup and integration": (
        "trust",
        "discover",
        "adopt",
        "config",
        "hook",
        "mcp",
        "notify",
        "otel",
        "scope",
        "evidence",
        "worker",
        "fleet",
        "completion",
    ),
}
TOOLS_SECTION = "Tools for authors of prompts, specifications and agents"
AGILEPLUS_NOTE = "`agileplus` is the same program, under the name used in the specification."
EPILOG = f"""\b
Everywhere: --feature NAME, --json, --help. All commands: phasegate help --all.
{AGILEPLUS_NOTE}"""
# Names that users of other tools try -> the command to run instead.
_OTHER_NAMES = {
    "version": "phasegate --version",
    "list": "phasegate status",
    "ls": "phasegate status",
    "log": "phasegate show WPnn --log",
    "diff": "phasegate show WPnn --diff",
    "continue": "phasegate run",
    "merge": "phasegate complete",
    "abort": "phasegate cancel",
}


class LazyGroup(click.Group):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, name, _ = entry
        command: click.Command = getattr(import_module(f"{commands.__name__}.{module}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise ConfigError(f"there is no command {args[0]!r}", _suggest_command(args[0]))
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete from the table, since importing every command on a key press is too slow."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=COMMANDS[name][2]) for name in names), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_commands(formatter, {"Commands": MAIN_COMMANDS})


def write_commands(formatter: click.HelpFormatter, sections: Mapping[str, Sequence[str]]) -> None:
    """Write the commands of these sections with their summaries."""
    for title, names in sections.items():
        with formatter.section(title):
            formatter.write_dl([(name, COMMANDS[name][2]) for name in names])


def list_all_sections() -> dict[str, Sequence[str]]:
    """Return all commands by topic."""
    placed = {name for names in SECTIONS.values() for name in names}
    return {**SECTIONS, TOOLS_SECTION: sorted(name for name in COMMANDS if name not in placed)}


def _suggest_command(name: str) -> str:
    from difflib import get_close_matches

    if name in _OTHER_NAMES:
        return f"did you mean: {_OTHER_NAMES[name]}"

    beginning = [command for command in MAIN_COMMANDS if command.startswith(name)]
    close = beginning or get_close_matches(name, COMMANDS, n=1)
    if close:
        return f"did you mean: phasegate {close[0]}"
    return "all commands: phasegate help --all"


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)
@click.version_option(package_name="phasegate", message=f"phasegate %(version)s\n{AGILEPLUS_NOTE}")
@click.option("--feature", metavar="SLUG", help="The feature, for every command that takes one.")
@click.option("-v", "--verbose", is_flag=True, help="Print debug messages to stderr.")
@click.pass_context
def app(ctx: click.Context, feature: str | None, verbose: bool) -> int | None:
    """Run features through phases and gates: coding agents do the work, evidence decides."""
    if feature:
        from phasegate.interfaces.cli.render import FEATURE_KEY

        ctx.meta[FEATURE_KEY] = feature

    if verbose:
        import logging

        logging.basicConfig(format="phasegate: %(message)s")
        logging.getLogger("phasegate").setLevel(logging.DEBUG)

    if ctx.invoked_subcommand is not None:
        return None

    from phasegate.interfaces.cli.commands import menu

    if menu.is_interactive():
        return menu.show_menu()

    click.echo(ctx.get_help())
    return None


def run_command(arguments: list[str]) -> int:
    """Run a command and return its exit code.

    0: success, 1: a negative result, 2 to 4: an error (see `errors.py`), 70: an internal error,
    130: interrupted.
    """
    try:
        result = _invoke(arguments)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        return _report_error(_to_usage_error(error), arguments)
    except KeyboardInterrupt:
        # End the line on which the terminal shows ^C.
        print(file=sys.stderr)
        return 130
    except PhasegateError as error:
        return _report_error(error, arguments)
    except BrokenPipeError:
        return _handle_broken_pipe()
    except Exception as error:
        return _report_unexpected_error(error)

    if isinstance(result, int):
        return result
    return 0


def _invoke(arguments: list[str]) -> object:
    """Run the command and return its result.

    It does not use click's `main`, which turns a closed pipe into a failure.
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
    """Return 0: a closed pipe, as in `phasegate ... | head`, is not an error."""
    _discard_output()
    return 0


def _discard_output() -> None:
    """Discard buffered output. The interpreter flushes stdout at exit and would report an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


_DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)


def _report_unexpected_error(error: Exception) -> int:
    """Report an error that no command handles, and return the exit code."""
    if isinstance(error, OSError) and error.errno in _DISK_ERRNOS:
        return _report_disk_error(error)
    if isinstance(error, UnicodeEncodeError):
        return _report_unencodable_text(error)

    return _report_internal_error(error)


def _report_unencodable_text(error: UnicodeEncodeError) -> int:
    """Report text that the locale cannot encode, and return the exit code."""
    text = ascii(error.object[error.start : error.end][:40])
    wrong = ConfigError(
        f"{text} cannot be encoded as {error.encoding}",
        "pass valid UTF-8, and set LC_ALL to a UTF-8 locale such as C.UTF-8",
    )
    show_error(wrong)
    return wrong.exit_code


def _report_disk_error(error: OSError) -> int:
    """Report that a file or stdout cannot be written, and return the exit code."""
    _discard_output()
    target = f" {error.filename}" if error.filename else ""
    unavailable = EnvironmentUnavailable(
        f"cannot write{target}: {error.strerror}",
        "check the disk (space, errors, permissions) or redirect the output, then run it again",
    )
    show_error(unavailable)

    return unavailable.exit_code


def _to_usage_error(error: click.ClickException) -> ConfigError:
    """Return an error about the arguments in the style of all other errors."""
    message = error.format_message()
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "phasegate"
    hint = f"{command} --help"
    if "unexpected extra argument" in message and _takes_free_text(error):
        hint = f"quote text that contains spaces; {hint}"

    return ConfigError(message[:1].lower() + message[1:].removesuffix("."), hint)


def _takes_free_text(error: click.ClickException) -> bool:
    from phasegate.interfaces.cli.render import FreeText

    if not isinstance(error, click.UsageError) or error.ctx is None:
        return False

    return any(isinstance(parameter.type, FreeText) for parameter in error.ctx.command.params)


def _report_internal_error(error: Exception) -> int:
    """Save the traceback to a file and print its path."""
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


def _report_error(error: PhasegateError, arguments: Sequence[str]) -> int:
    """Print an error, with `--json` also as an object on stdout. Return the exit code."""
    show_error(error)
    if "--json" in arguments:
        from json import dumps

        print(dumps({"error": error.message, "hint": error.hint, "exit_code": error.exit_code}))

    return error.exit_code


def show_error(error: PhasegateError) -> None:
    """Print an error and its hint to stderr.

    A message may hold names from outside, so it is made printable.
    """
    from phasegate.interfaces.cli.render import make_printable

    if error.hint:
        hint = f"\n  hint: {make_printable(error.hint)}"
    else:
        hint = ""

    # If stderr is closed, the exit code still reports the error.
    with suppress(OSError):
        print(f"phasegate: {make_printable(error.message)}{hint}", file=sys.stderr, flush=True)
