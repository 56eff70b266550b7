"""`phasegate trust`: show what a repository asks for, and accept it."""

from __future__ import annotations

import sys

import click

from phasegate.engine.project.settings import RepositoryTrust, open_trust
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.render import (
    current_folder,
    json_option,
    make_printable,
    print_line,
    print_result,
)

_KINDS = ("programs", "hosts", "variables", "sandbox", "other", "files")


@click.command()
@click.option("--yes", is_flag=True, help="Accept it without asking.")
@click.option("--show", is_flag=True, help="Show it only. Exit 1 if something is not accepted.")
@click.option("--revoke", is_flag=True, help="Withdraw what was accepted for this repository.")
@json_option
def trust(yes: bool, show: bool, revoke: bool, as_json: bool) -> int:
    """Show what this repository asks for, and accept it.

    A cloned repository brings its own phasegate.toml, templates, project description and
    .worktreeinclude. Programs, hosts, variables and a weaker sandbox in them are ignored until you
    accept them here. A change has to be accepted again. Only in a repository that you accepted,
    setups get your credentials for package registries, and code runs on a machine without a
    sandbox. Exit 0: accepted. Exit 1: not accepted.

    In CI set PHASEGATE_TRUST to the digest shown here, or to 1 for any content.

    \b
    Examples:
      phasegate trust
      phasegate trust --yes
      phasegate trust --show --json
    """
    repository = open_trust(current_folder())
    if revoke:
        repository.forget()
        return 0

    accepted = repository.trust.is_accepted
    if not as_json:
        print_line("\n".join(_format_trust(repository)))

    if not accepted and not show:
        accepted = yes or _confirm()
        if accepted:
            repository.accept()
            accepted = all(part.digest for part in repository.trust.parts)

    if as_json:
        untrusted = [part.name for part in repository.trust.untrusted]
        data = {
            "root": str(repository.root),
            "digest": repository.digest,
            "asks_for": repository.describe(),
            "not_accepted": [] if accepted else untrusted,
            "accepted": accepted,
        }
        print_result(data, "", as_json)

    if accepted:
        return 0
    return 1


def _confirm() -> bool:
    if not sys.stdin.isatty():
        raise ConfigError("nothing was accepted: there is no terminal", "phasegate trust --yes")
    return click.confirm("Accept this for this repository?", err=True)


def _format_trust(repository: RepositoryTrust) -> list[str]:
    """Return the lines about the requests of a repository."""
    asked = repository.describe()
    lines = [f"{make_printable(repository.root)} asks for:"]
    for kind in _KINDS:
        for text in asked.get(kind, ()):
            lines.append(f"  {kind:<10} {make_printable(text)}")

    if len(lines) == 1:
        lines = ["This repository asks for nothing that needs your trust."]

    names = [make_printable(part.name) for part in repository.trust.untrusted]
    if names:
        lines.append(f"Not accepted yet: {', '.join(names)}")
    lines.append("Setups of an accepted repository get your credentials for package registries.")
    return [*lines, f"digest: {repository.digest}"]
