"""`phasegate template`: the system prompt templates of the project and the shipped ones."""

from __future__ import annotations

import os
from pathlib import Path

import click

from phasegate.core.prompt.template import build_metadata, describe_schema_mismatch
from phasegate.engine.tools.templates import Template, TemplateFolder, describe_template
from phasegate.interfaces.cli.group import Group
from phasegate.interfaces.cli.render import (
    current_folder,
    json_option,
    make_printable,
    print_result,
)


@click.group(cls=Group)
def template() -> None:
    """List, show, check, describe or copy system prompt templates."""


@template.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the templates of the project and the shipped ones.

    \b
    Example:
      phasegate template list
    """
    templates = TemplateFolder(current_folder()).list_templates()
    rows = [
        {
            "agent": one.name.agent,
            "phase": one.name.phase,
            "source": _describe_source(one),
            "path": str(one.path),
        }
        for one in templates
    ]

    lines = [
        f"{row['agent']:10} {row['phase']:10} {row['source']:8} {Path(row['path']).name}"
        for row in rows
    ]
    print_result(rows, "\n".join(lines), as_json)


def _describe_source(template: Template) -> str:
    if template.is_shipped:
        return "shipped"
    return "project"


@template.command()
@click.argument("agent")
@click.argument("phase")
@json_option
def show(agent: str, phase: str, as_json: bool) -> None:
    """Show the template of AGENT for PHASE, before its variables are filled.

    \b
    Example:
      phasegate template show codex challenge
    """
    source = TemplateFolder(current_folder()).find_template(agent, phase)
    metadata = build_metadata(source.name, source.text)
    data = {
        "agent": metadata.agent,
        "phase": metadata.phase,
        "variables": metadata.variables,
        "source": _describe_source(source),
        "path": str(source.path),
        "text": source.text,
    }
    print_result(data, source.text.rstrip("\n"), as_json)


@template.command("lint")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@json_option
def lint_(paths: tuple[str, ...], as_json: bool) -> int:
    """Check templates or folders of templates; default: those of the project and the shipped ones.

    Exit 0: no findings. Exit 1: one line for each finding: `path:line: code message`.

    \b
    Examples:
      phasegate template lint
      phasegate template lint templates/system/CLAUDE-plan.md
    """
    findings = TemplateFolder(current_folder()).lint_templates([Path(path) for path in paths])
    lines = [f"{one.path}:{one.line}: {one.code} {one.message}" for one in findings]
    print_result({"ok": not findings, "findings": findings}, "\n".join(lines), as_json)
    if findings:
        return 1

    return 0


@template.command("metadata")
@click.argument("path", type=click.Path(path_type=Path))
@json_option
def metadata_(path: Path, as_json: bool) -> None:
    """Describe the template at PATH: agent, phase, variables.

    \b
    Example:
      phasegate template metadata templates/system/CLAUDE-plan.md --json
    """
    about = describe_template(path)
    note = describe_schema_mismatch(about.agent)
    text = f"agent: {about.agent}\nphase: {about.phase}\nvariables: {', '.join(about.variables)}"
    data = {"agent": about.agent, "phase": about.phase, "variables": about.variables}
    print_result(
        {**data, "schema": note} if note else data,
        f"{text}\nschema: {note}" if note else text,
        as_json,
    )


@template.command()
@click.argument("agent", required=False)
@click.argument("phase", required=False)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@json_option
def eject(agent: str | None, phase: str | None, force: bool, as_json: bool) -> int:
    """Copy shipped templates into templates/system/ of the project, for editing.

    Copies all templates, or the one of AGENT for PHASE. An existing file is kept, with exit code 1,
    unless --force is given.

    \b
    Examples:
      phasegate template eject
      phasegate template eject claude implement
    """
    if (agent is None) != (phase is None):
        raise click.UsageError("Give both AGENT and PHASE, or neither.")

    written = TemplateFolder(current_folder()).eject_templates(agent, phase, force=force)
    lines = []
    for path, is_written in written.items():
        name = make_printable(os.path.relpath(path))
        if is_written:
            lines.append(f"wrote {name}")
        else:
            lines.append(f"kept {name}: the file exists (use --force to overwrite it)")

    data = [{"path": str(path), "written": done} for path, done in written.items()]
    print_result(data, "\n".join(lines), as_json)
    if all(written.values()):
        return 0

    return 1
