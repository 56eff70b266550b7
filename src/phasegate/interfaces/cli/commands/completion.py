"""`phasegate completion`: print the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from phasegate.interfaces.cli.main import COMPLETION_VARIABLE

SHELL_COMPLETERS: dict[str, type[ShellComplete]] = {
    "bash": BashComplete,
    "zsh": ZshComplete,
    "fish": FishComplete,
}


@click.command()
@click.argument("shell", type=click.Choice([*SHELL_COMPLETERS]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL: bash, zsh or fish.

    \b
    Installation:
      bash  phasegate completion bash > ~/.local/share/bash-completion/completions/phasegate
            (or in ~/.bashrc: eval "$(phasegate completion bash)")
      zsh   phasegate completion zsh > a folder of your $fpath, as _phasegate
            (or in ~/.zshrc, after compinit: eval "$(phasegate completion zsh)")
      fish  phasegate completion fish > ~/.config/fish/completions/phasegate.fish

    Then open a new shell. bash needs version 4.4 or later.
    """
    script = SHELL_COMPLETERS[shell](ctx.find_root().command, {}, "phasegate", COMPLETION_VARIABLE)
    # script.source() would start a bash process only to read its version.
    click.echo(script.source_template % script.source_vars())
