"""Finding and reading system prompt templates: the project's first, then the shipped ones."""

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
    """A template that was found, and whether it is one of ours."""

    name: TemplateName
    path: Path
    is_shipped: bool
    text: str


def load_system_template(agent: str, phase: str, *, root: str | Path | None = None) -> str:
    """The template of an agent and phase.

    `root` holds `templates/system/`, None is the repository around.
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
    """The first that exists.

    The project's for the agent, its BASE, the shipped one for the agent, the shipped BASE.

    `configured` names agents that the project knows besides the usual ones, by their `template`
    keys. `below` is the folder of the project's templates, from the root on.
    """
    name = parse_template_name(agent, phase)
    if name is None:
        raise _make_invalid_name_error(agent, phase, templates_folder)

    if root is None:
        root = find_project_root()
    else:
        root = Path(root)

    for wanted, where in _iter_candidates(
        name,
        root / templates_folder,
        known=name.agent in KNOWN_AGENTS or name.agent in configured_agents,
    ):
        template = _read_candidate(wanted, where, root)
        if template:
            if wanted != name:
                _log.debug("no template %s; %s is used instead", name.file_name, template.path)
            return template

    raise _make_not_found_error(name, templates_folder)


def _iter_candidates(
    name: TemplateName, project: Path, known: bool
) -> Iterator[tuple[TemplateName, Path]]:
    base = TemplateName(BASE_AGENT, name.phase)
    yield name, project
    if not known:
        # An agent that nobody configured and nobody wrote a template for
        return

    yield base, project
    yield name, SHIPPED_FOLDER
    yield base, SHIPPED_FOLDER


def find_project_root() -> Path:
    """The repository around the current folder; the folder itself where there is none."""
    here = Path.cwd().resolve()
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)


def _read_candidate(name: TemplateName, folder: Path, root: Path) -> Template | None:
    path = folder / name.file_name
    if not os.path.lexists(path):
        return None

    shipped = folder == SHIPPED_FOLDER
    if not shipped and not folder.resolve().is_relative_to(root.resolve()):
        raise _make_refused_error(path, "its folder lies outside the project")

    return Template(name, path, shipped, read_template(path))


def read_template(path: Path) -> str:
    """The text of a template file.

    A link, a pipe, a folder, too many bytes or no UTF-8: refused, without a wait.
    """
    try:
        raw, size = read_up_to(path, MAX_TEMPLATE_BYTES + 1, follow_links=False)
        text = raw.decode()
    except UnreadableFile as error:
        raise _make_refused_error(path, error.message) from error
    except UnicodeDecodeError as error:
        raise _make_refused_error(path, f"byte {error.start} is not UTF-8") from error

    if len(raw) > MAX_TEMPLATE_BYTES:
        raise _make_refused_error(
            path, f"{size} bytes are more than the {MAX_TEMPLATE_BYTES} that are allowed"
        )

    return text


def list_shipped_templates() -> list[Template]:
    """All templates of the package, by file name."""
    return list_templates(SHIPPED_FOLDER)


def list_templates(folder: Path) -> list[Template]:
    """The templates of a folder, by file name; other files are passed over."""
    shipped = folder == SHIPPED_FOLDER
    named = [
        (name, path) for path in list_markdown_files(folder) if (name := parse_file_name(path.name))
    ]
    return [Template(name, path, shipped, read_template(path)) for name, path in named]


def list_markdown_files(folder: Path) -> list[Path]:
    """The Markdown files of a folder, sorted by name; none if there is no such folder."""
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
        _log.warning("{{%s}} is not a template variable and stays as it is", name)

    return filled.text


def _make_invalid_name_error(
    agent: object, phase: object, templates_folder: str
) -> TemplateNotFound:
    """Said without making a path of what was asked for.

    A plain word may be shown as the name that it would have.
    """
    words = [
        str(word) if _PLAIN_WORD.fullmatch(str(word)) else repr(str(word)[:80])
        for word in (agent, phase)
    ]
    return TemplateNotFound(
        f"TemplateNotFound: agent {words[0]}, phase {words[1]}: there can be neither"
        f" {templates_folder}/{words[0]}-{words[1]}.md nor {templates_folder}/{BASE_AGENT}-{words[1]}.md",
        f"agents are upper case, like CLAUDE; phases are {', '.join(AgentPhase)}",
    )


def _make_not_found_error(name: TemplateName, templates_folder: str) -> TemplateNotFound:
    base = TemplateName(BASE_AGENT, name.phase).file_name
    return TemplateNotFound(
        f"TemplateNotFound: agent {name.agent}, phase {name.phase}:"
        f" there is neither {templates_folder}/{name.file_name} nor {templates_folder}/{base}",
        f"write {templates_folder}/{name.file_name}, or use one of {', '.join(sorted(KNOWN_AGENTS))}",
    )


def _make_refused_error(path: Path, reason: str) -> TemplateRefused:
    return TemplateRefused(
        f"the template {path} is refused: {reason}", "put a regular UTF-8 file there"
    )


def eject_template(template: Template, folder: Path, force: bool) -> bool:
    """Write the template into the folder.

    Whether it was written: what exists stays, unless it is to be replaced.
    """
    path = folder / template.name.file_name

    try:
        folder.mkdir(parents=True, exist_ok=True)
        if force and os.path.lexists(path):
            # A link goes, not what it points at
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
