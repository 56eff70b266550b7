"""System prompt templates, the project's and the shipped ones: found, checked, copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from phasegate.core.prompt.template import AgentPhase, SystemTemplateMetadata, metadata, name_of_file, prefix_of
from phasegate.core.prompt.template_lint import lint
from phasegate.core.text.finding import Finding, Placed, placed
from phasegate.engine.project.settings import settings_around, template_prefix
from phasegate.errors import ConfigError, TemplateRefused
from phasegate.prompts.templates import (
    SHIPPED_FOLDER,
    eject_template,
    find_template,
    markdown_files,
    project_root,
    read_template,
    shipped_templates,
    templates_in,
)
from phasegate.prompts.templates import Template as Template  # doors name the type


class TemplateFolder:
    """The templates that hold in a folder: the project's own before the shipped ones."""

    def __init__(self, folder: Path) -> None:
        self._config = settings_around(folder).config
        self._below = self._config.paths.templates

    @property
    def _own(self) -> Path:
        return project_root() / self._below

    def listed(self) -> list[Template]:
        """Every template that an agent could get."""
        own = templates_in(self._own)
        return own + [one for one in shipped_templates() if one.name not in {mine.name for mine in own}]

    def find(self, agent: str, phase: str) -> Template:
        """The template that an agent would get in a phase."""
        prefix, configured = template_prefix(self._config, agent)
        return find_template(prefix, phase, configured=configured, below=self._below)

    def lint(self, paths: Sequence[Path] = ()) -> list[Placed]:
        """What is wrong with templates, or folders of them; by default the project's own and the shipped ones."""
        chosen = paths or (self._own, SHIPPED_FOLDER)
        files = _files(chosen, named=bool(paths))
        return [found for path in files for found in placed(str(path), _findings(path))]

    def eject(self, agent: str | None, phase: str | None, *, force: bool) -> dict[Path, bool]:
        """Copy shipped templates into the project: each path, and whether it was written."""
        root = SHIPPED_FOLDER.parent.parent
        chosen = [find_template(prefix_of(agent), phase, root=root)] if agent and phase else shipped_templates()
        return {self._own / one.name.file_name: eject_template(one, self._own, force) for one in chosen}


def describe_template(path: Path) -> SystemTemplateMetadata:
    """Agent, phase and variables of the template in a file."""
    name = name_of_file(path.name)
    if name is None:
        raise ConfigError(f"{path.name} is not a template name", "templates are named [AGENT]-[PHASE].md")
    return metadata(name, read_template(path))


def _files(paths: Iterable[Path], named: bool) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            found = [*markdown_files(path)]
            if named and not found:
                raise ConfigError(f"there is no template in {path}", "name a template file or a folder of them")
            yield from found
        elif named and not path.is_symlink() and not path.exists():
            raise ConfigError(f"there is no {path}", "name a template file or a folder of them")
        elif named:
            yield path


def _findings(path: Path) -> list[Finding]:
    name = name_of_file(path.name)
    if name is None:
        return [Finding(1, "bad-name", f"the name is not [AGENT]-[PHASE].md, with a phase of {', '.join(AgentPhase)}")]
    try:
        return lint(name.phase, read_template(path))
    except TemplateRefused as error:
        return [Finding(1, "refused", error.message)]
