"""Find and read system prompt templates: the project's first, then the shipped ones."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from phasegate.core.prompt.template import (
    BASE_AGENT,
    KNOWN_AGENTS,
    AgentPhase,
    TemplateName,
    fill_template,
    parse_file_name,
    parse_template_name,
)
from phasegate.errors import ConfigError, TemplateNotFound, TemplateRefused, UnreadableFile
from phasegate.files.block_reader import read_up_to
from phasegate.prompts.shipped_texts import load_phrases

TEMPLATES_FOLDER = "templates/system"
SHIPPED_FOLDER = Path(__file__).parent / TEMPLATES_FOLDER
MAX_TEMPLATE_BYTES = 1024 * 1024
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_-]{1,64}")
_log = logging.getLogger("phasegate")


class Template(NamedTuple):
    """A template, and whether it is one of the shipped templates."""

    name: TemplateName
    path: Path
    is_shipped: bool
    text: str


def load_system_template(agent: str, phase: str, *, root: str | Path | None = None) -> str:
    """Load the template of an agent and phase.

    `root` contains `templates/system/`; None means the repository of the current folder.
    """
    return find_template(agent, phase, root=root).text


def find_template(
    agent: str,
    phase: str,
    *,
    root: str | Path | None = None,
    configured_agents: Collection[str] = (),
    templates_folder: str = TEMPLATES_FOLDER,
) -> Template:
    """Return the first existing template.

    The order is: the project's for the agent, the project's BASE, the shipped one for the agent,
    the shipped BASE.

    `configured_agents` are the agents that the project configures in addition to the known ones, by
    their `template` keys. `templates_folder` is the folder of the project's templates, relative to
    the root; empty: only shipped ones are used.
    """
    name = parse_template_name(agent, phase)
    if name is None:
        raise _make_invalid_name_error(agent, phase, templates_folder)

    root = find_project_root() if root is None else Path(root)
    known = name.agent in KNOWN_AGENTS or name.agent in configured_agents

    project = root / templates_folder if templates_folder else None
    for candidate, folder in _iter_candidates(name, project, known):
        template = _read_candidate(candidate, folder, root)
        if template:
            if candidate != name:
                _log.debug("no template %s; %s is used instead", name.file_name, template.path)
            return template

    raise _make_not_found_error(name, templates_folder)


def _iter_candidates(
    name: TemplateName, project: Path | None, known: bool
) -> Iterator[tuple[TemplateName, Path]]:
    """Yield the template names and folders to try, in order of precedence."""
    base = TemplateName(BASE_AGENT, name.phase)
    if project is not None:
        yield name, project
    if not known:
        # Neither configured nor known, so only its own template counts
        return

    if project is not None:
        yield base, project
    yield name, SHIPPED_FOLDER
    yield base, SHIPPED_FOLDER


def find_project_root() -> Path:
    """Return the repository of the current folder; the folder itself if there is none."""
    here = Path.cwd().resolve()
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)


def _read_candidate(name: TemplateName, folder: Path, root: Path) -> Template | None:
    path = folder / name.file_name
    if not os.path.lexists(path):
        return None

    shipped = folder == SHIPPED_FOLDER
    if not shipped and not folder.resolve().is_relative_to(root.resolve()):
        raise _make_refused_error(path, "its folder is outside the project")

    return Template(name, path, shipped, read_template(path))


def read_template(path: Path) -> str:
    """Read a template file.

    Links, pipes, folders, large files and invalid UTF-8 are refused without blocking.
    """
    try:
        raw, size = read_up_to(path, MAX_TEMPLATE_BYTES + 1, follow_links=False)
        text = raw.decode()
    except UnreadableFile as error:
        raise _make_refused_error(path, error.message) from error
    except UnicodeDecodeError as error:
        raise _make_refused_error(path, f"invalid UTF-8 at byte {error.start}") from error

    if len(raw) > MAX_TEMPLATE_BYTES:
        raise _make_refused_error(
            path, f"its size of {size} bytes exceeds the limit of {MAX_TEMPLATE_BYTES}"
        )

    return text


def list_shipped_templates() -> list[Template]:
    """List all templates of the package, by file name."""
    return list_templates(SHIPPED_FOLDER)


def list_templates(folder: Path) -> list[Template]:
    """List the templates of a folder, by file name; other files are ignored."""
    shipped = folder == SHIPPED_FOLDER
    templates = [
        (name, path) for path in list_markdown_files(folder) if (name := parse_file_name(path.name))
    ]
    return [Template(name, path, shipped, read_template(path)) for name, path in templates]


def list_markdown_files(folder: Path) -> list[Path]:
    """List the Markdown files of a folder by name; empty if there is no such folder."""
    names = os.listdir(folder) if folder.is_dir() else []  # noqa: PTH208 - sorting paths takes three times as long
    return [folder / name for name in sorted(names) if name.endswith(".md")]


def inject_variables(template: str, context: Mapping[str, str]) -> str:
    """Fill the placeholders in one pass.

    A variable without a value leaves a visible note and a logged warning.
    """
    filled = fill_template(template, context, load_phrases().missing)
    for name in filled.missing:
        _log.warning("no value for the template variable %s", name)

    for name in filled.unknown:
        _log.warning("{{%s}} is not a template variable and is left unchanged", name)

    return filled.text


def _make_invalid_name_error(
    agent: object, phase: object, templates_folder: str
) -> TemplateNotFound:
    """Build the error for an invalid name, without using it as a path.

    A plain word may appear in the file name that it would have.
    """
    agent_word = _quote_unless_plain(agent)
    phase_word = _quote_unless_plain(phase)
    return TemplateNotFound(
        f"TemplateNotFound: agent {agent_word}, phase {phase_word}: there can be neither"
        f" {templates_folder}/{agent_word}-{phase_word}.md"
        f" nor {templates_folder}/{BASE_AGENT}-{phase_word}.md",
        f"agents are upper case, like CLAUDE; phases are {', '.join(AgentPhase)}",
    )


def _quote_unless_plain(word: object) -> str:
    text = str(word)
    if _PLAIN_WORD.fullmatch(text):
        return text
    return repr(text[:80])


def _make_not_found_error(name: TemplateName, templates_folder: str) -> TemplateNotFound:
    base = TemplateName(BASE_AGENT, name.phase).file_name
    return TemplateNotFound(
        f"TemplateNotFound: agent {name.agent}, phase {name.phase}:"
        f" there is neither {templates_folder}/{name.file_name} nor {templates_folder}/{base}",
        f"create {templates_folder}/{name.file_name}, or use one of"
        f" {', '.join(sorted(KNOWN_AGENTS))}",
    )


def _make_refused_error(path: Path, reason: str) -> TemplateRefused:
    return TemplateRefused(
        f"cannot use template {path}: {reason}", "replace it with a regular UTF-8 file"
    )


def eject_template(template: Template, folder: Path, force: bool) -> bool:
    """Write the template into the folder; return True if it was written.

    An existing file is kept, unless `force` is set.
    """
    path = folder / template.name.file_name

    try:
        folder.mkdir(parents=True, exist_ok=True)
        if force and os.path.lexists(path):
            # Removes a link, not its target
            path.unlink()

        with path.open("x", encoding="utf-8", newline="") as file:
            file.write(template.text)
    except FileExistsError:
        return False
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}", "make the folder writable"
        ) from error

    return True
