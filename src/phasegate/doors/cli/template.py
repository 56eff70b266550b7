"""`phasegate template`: system prompt templates, the project's and the shipped ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click

from phasegate.config import load
from phasegate.doors.cli.group import Group
from phasegate.doors.cli.render import current_folder, json_option, printable
from phasegate.doors.cli.render import show as show_result
from phasegate.errors import ConfigError, TemplateRefused
from phasegate.prompts.templates import (
    SHIPPED_FOLDER,
    Template,
    eject_template,
    find_template,
    markdown_files,
    project_folder,
    project_root,
    read_template,
    shipped_templates,
    templates_in,
)
from phasegate.record.location import main_tree
from phasegate.rules.template import AgentPhase, metadata, name_of_file, prefix_of
from phasegate.rules.template_lint import TemplateFinding, lint


@click.group(cls=Group)
def template() -> None:
    """List, show, lint, describe and copy system prompt templates."""


@template.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the templates: the project's own, and the shipped ones.

    \b
    Example:
      phasegate template list
    """
    own = templates_in(_own_folder())
    found = own + [one for one in shipped_templates() if one.name not in {mine.name for mine in own}]
    rows = [
        {"agent": one.name.agent, "phase": one.name.phase, "source": _source(one), "path": str(one.path)}
        for one in found
    ]
    lines = [f"{row['agent']:10} {row['phase']:10} {row['source']:8} {Path(row['path']).name}" for row in rows]
    show_result(rows, "\n".join(lines), as_json)


def _below() -> str:
    return load(main_tree(current_folder()), os.environ).config.paths.templates


def _own_folder() -> Path:
    return project_folder(project_root(), _below())


def _source(found: Template) -> str:
    return "shipped" if found.shipped else "project"


@template.command()
@click.argument("agent")
@click.argument("phase")
@json_option
def show(agent: str, phase: str, as_json: bool) -> None:
    """Show the template that AGENT would get in PHASE, before its variables are filled.

    \b
    Example:
      phasegate template show codex challenge
    """
    found = find_template(prefix_of(agent), phase, below=_below())
    about = metadata(found.name, found.text)
    data = {"agent": about.agent, "phase": about.phase, "variables": about.variables, "source": _source(found)}
    show_result(data | {"path": str(found.path), "text": found.text}, found.text.rstrip("\n"), as_json)


@template.command("lint")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@json_option
def lint_(paths: tuple[str, ...], as_json: bool) -> int:
    """Check templates, or folders of them; by default the project's own and the shipped ones.

    Exit 0 when nothing was found; 1 and one line a finding otherwise: `path:line: code message`.

    \b
    Examples:
      phasegate template lint
      phasegate template lint templates/system/CLAUDE-plan.md
    """
    chosen = [Path(path) for path in paths] or [_own_folder(), SHIPPED_FOLDER]
    found = [(path, finding) for path in _files(chosen, named=bool(paths)) for finding in _findings(path)]
    lines = [f"{path}:{finding.line}: {finding.code} {finding.message}" for path, finding in found]
    data = [{"path": str(path), **finding._asdict()} for path, finding in found]
    show_result({"ok": not found, "findings": data}, "\n".join(lines), as_json)
    return 1 if found else 0


def _files(paths: list[Path], named: bool) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from markdown_files(path)
        elif named and not path.is_symlink() and not path.exists():
            raise ConfigError(f"there is no {path}", "name a template file or a folder of them")
        elif named:
            yield path


def _findings(path: Path) -> list[TemplateFinding]:
    name = name_of_file(path.name)
    if name is None:
        return [
            TemplateFinding(
                1, "bad-name", f"the name is not [AGENT]-[PHASE].md, with a phase of {', '.join(AgentPhase)}"
            )
        ]
    try:
        return lint(name.phase, read_template(path))
    except TemplateRefused as error:
        return [TemplateFinding(1, "refused", error.message)]


@template.command("metadata")
@click.argument("path", type=click.Path(path_type=Path))
@json_option
def metadata_(path: Path, as_json: bool) -> None:
    """Describe the template at PATH: agent, phase, variables.

    \b
    Example:
      phasegate template metadata templates/system/CLAUDE-plan.md --json
    """
    name = name_of_file(path.name)
    if name is None:
        raise ConfigError(f"{path.name} is not a template name", "templates are named [AGENT]-[PHASE].md")
    about = metadata(name, read_template(path))
    text = f"agent: {about.agent}\nphase: {about.phase}\nvariables: {', '.join(about.variables)}"
    show_result(about, text, as_json)


@template.command()
@click.argument("agent", required=False)
@click.argument("phase", required=False)
@click.option("--force", is_flag=True, help="Replace files that exist.")
@json_option
def eject(agent: str | None, phase: str | None, force: bool, as_json: bool) -> int:
    """Copy shipped templates into the project's templates/system/, to be changed there: all, or AGENT's for PHASE.

    A file that exists is kept, and the exit code is 1, unless --force is given.

    \b
    Examples:
      phasegate template eject
      phasegate template eject claude implement
    """
    if (agent is None) != (phase is None):
        raise click.UsageError("Give both AGENT and PHASE, or neither.")
    chosen = [_shipped(agent, phase)] if agent and phase else shipped_templates()
    folder = _own_folder()
    written = {folder / one.name.file_name: eject_template(one, folder, force) for one in chosen}
    lines = [
        f"wrote {shown}" if done else f"kept {shown}, which exists (--force replaces it)"
        for shown, done in ((printable(os.path.relpath(path)), done) for path, done in written.items())
    ]
    data = [{"path": str(path), "written": done} for path, done in written.items()]
    show_result(data, "\n".join(lines), as_json)
    return 0 if all(written.values()) else 1


def _shipped(agent: str, phase: str) -> Template:
    """The shipped template that the agent would get, whatever the project has."""
    return find_template(prefix_of(agent), phase, root=SHIPPED_FOLDER.parent.parent)
