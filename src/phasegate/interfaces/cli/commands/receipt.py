"""`phasegate receipt`: show, verify and export the receipts of merges."""

from __future__ import annotations

from pathlib import Path

import click

from phasegate.core.text.visible import escape_unprintable
from phasegate.engine.project.project import open_project
from phasegate.engine.views.receipt import (
    StoredReceipt,
    export_receipt,
    find_stored_receipt,
    read_verifier,
    run_verifier,
)
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.options import feature_option
from phasegate.interfaces.cli.render import current_folder, json_option, print_result

_SHOWN = ("requirements", "evidence", "agents", "jobs", "gates", "decisions")


@click.group(cls=Group)
def receipt() -> None:
    """Show, verify or export the receipts of merges."""


@receipt.command("show")
@feature_option
@json_option
def show_command(feature: str | None, as_json: bool) -> None:
    """Show the receipt of the newest merge, or of a feature.

    \b
    Examples:
      phasegate receipt show
      phasegate receipt show --feature 001-user-login --json
    """
    stored = find_stored_receipt(open_project(current_folder()), feature)
    text = "\n".join(map(escape_unprintable, _format_receipt(stored)))
    print_result(stored.statement, text, as_json)


def _format_receipt(stored: StoredReceipt) -> list[str]:
    """Return the lines that summarize a receipt."""
    predicate = stored.statement["predicate"]
    assert isinstance(predicate, dict)
    written = stored.written
    signed = f"signed with {written.key}" if written.format else f"NOT SIGNED: {written.problem}"
    counts = [f"  {len(predicate[name])} {name}" for name in _SHOWN]
    audit = predicate["audit"]
    return [
        f"{stored.feature}: merged into {predicate['base']['branch']} at {written.commit}",
        f"  {signed}",
        *counts,
        f"  audit chain: entry {audit['entries']}, {audit['hash']}",
    ]


@receipt.command("verify")
@click.argument("commit", default="HEAD")
@click.option("--key", metavar="FILE", help="ssh public key of the signer.")
@click.option("--allowed-signers", metavar="FILE", help="Trusted ssh keys, as for git.")
@click.option("--fingerprint", metavar="HEX", help="gpg key of the signer.")
@click.option("--bundle", metavar="DIR", help="Also check a folder written by `receipt export`.")
@click.option("--replay", is_flag=True, help="Run the recorded commands on a clean checkout.")
def verify_command(commit: str, replay: bool, **options: str | None) -> int:
    """Verify the receipt of a merge, with the program that also works without Phasegate.

    Exit 0: verified, and signed by a trusted key. Exit 1: a check failed. Exit 3: all checks pass,
    but no trusted key signed it.

    \b
    Examples:
      phasegate receipt verify --key signer.pub
      phasegate receipt verify HEAD~2 --allowed-signers signers --replay
    """
    arguments = ["--replay"] if replay else []
    for name, value in options.items():
        if value is not None:
            arguments += [f"--{name.replace('_', '-')}", value]

    result = run_verifier(open_project(current_folder()), [*arguments, "--", commit])
    text = result.stdout + result.stderr
    for line in text.decode(errors="replace").splitlines():
        click.echo(escape_unprintable(line))
    if result.exit_code is None:
        return 1
    return result.exit_code


@receipt.command("export")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@feature_option
@json_option
def export_command(folder: Path, feature: str | None, as_json: bool) -> None:
    """Write a receipt with its documents, the audit chain and a C2SP checkpoint to a folder.

    \b
    Examples:
      phasegate receipt export /tmp/receipt
    """
    project = open_project(current_folder())
    names = export_receipt(project, find_stored_receipt(project, feature), folder)
    print_result({"folder": str(folder), "files": names}, f"{folder}: {len(names)} files", as_json)


@receipt.command("verifier")
def verifier_command() -> None:
    """Print the program that verifies receipts with git and ssh-keygen only.

    \b
    Examples:
      phasegate receipt verifier > verify.py
    """
    click.echo(read_verifier(), nl=False)
