"""`phasegate artifact`: write, read and list the artifacts of a feature."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from phasegate.core.text.visible import escape_unprintable
from phasegate.engine.views.artifacts import ArtifactFiles, render_artifacts
from phasegate.engine.views.overview import resolve_feature
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.options import resolve_feature_callback
from phasegate.interfaces.cli.render import current_folder, json_option, print_result, read_input

F = TypeVar("F", bound=Callable[..., Any])
_slug_option: Callable[[F], F] = click.option(
    "--feature-slug",
    "--feature",
    "slug",
    required=True,
    metavar="SLUG",
    help="The feature, e.g. 001-user-login.",
)
_path_option: Callable[[F], F] = click.option(
    "--relative-path",
    "path",
    required=True,
    metavar="PATH",
    help="The file, relative to the feature's folder.",
)


@click.group(cls=Group)
def artifact() -> None:
    """Write, read and list the artifacts of a feature."""


@artifact.command("write")
@_slug_option
@_path_option
@click.option("--content", metavar="TEXT", help="The content itself.")
@click.option("--file", "source", metavar="FILE", help="A file to copy the content from.")
@click.argument("stdin", metavar="[-]", required=False, type=click.Choice(["-"]))
@json_option
def write_command(
    slug: str, path: str, content: str | None, source: str | None, stdin: str | None, as_json: bool
) -> None:
    """Write an artifact.

    An existing artifact is replaced where it is: in the checkout or on the feature's branch. A new
    one goes into the record.

    \b
    Examples:
      phasegate artifact write --feature 001-login --relative-path tests.txt --content "42 passed"
      my-tests | phasegate artifact write --feature 001-login --relative-path WP01/tests.log -
    """
    if sum(given is not None for given in (content, source, stdin)) != 1:
        raise click.UsageError("Give exactly one of --content, --file and -.")

    if content is not None:
        data = os.fsencode(content)
    else:
        data = read_input(source or "-")

    files = ArtifactFiles(current_folder())
    written = files.write(slug, path, data)
    name = f"{files.features_folder}/{slug}/{path}"
    text = escape_unprintable(f"wrote {name} ({len(data)} bytes) {written.location_text}").rstrip()
    print_result({"path": name, "bytes": len(data), "branch": written.branch}, text, as_json)


@artifact.command("read")
@_slug_option
@_path_option
@json_option
def read_command(slug: str, path: str, as_json: bool) -> None:
    """Print an artifact.

    A pipe or file gets the exact bytes; on a terminal, control characters are escaped.

    \b
    Example:
      phasegate artifact read --feature-slug 001-user-login --relative-path spec.md
    """
    slug = resolve_feature(str(current_folder()), slug)
    data = ArtifactFiles(current_folder()).read(slug, path)

    if as_json:
        about = {"feature_slug": slug, "relative_path": path, "bytes": len(data)}
        print_result({**about, **_encode_content(data)}, "", as_json)
    elif sys.stdout.isatty():
        text = data.decode("utf-8", "backslashreplace")
        click.echo(escape_unprintable(text, keep="\n\t"), nl=False)
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _encode_content(data: bytes) -> dict[str, str]:
    try:
        return {"encoding": "utf-8", "content": data.decode()}
    except UnicodeDecodeError:
        return {"encoding": "base64", "content": base64.b64encode(data).decode()}


@artifact.command("list")
@click.option(
    "--feature-slug",
    "--feature",
    "slug",
    metavar="SLUG",
    callback=resolve_feature_callback,
    help="Only artifacts of this feature.",
)
@json_option
def list_command(slug: str | None, as_json: bool) -> None:
    """List the artifacts of one feature or of all: in the checkout, on its branch, in the record.

    \b
    Examples:
      phasegate artifact list
      phasegate artifact list --feature 001-user-login --json
    """
    files = ArtifactFiles(current_folder())
    artifacts = files.list_artifacts(slug)
    text = render_artifacts(artifacts, files.features_folder)
    print_result({"artifacts": artifacts}, text, as_json)
