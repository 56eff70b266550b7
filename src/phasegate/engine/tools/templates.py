"""Find, check and copy system prompt templates, the project's and the shipped ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from phasegate.core.prompt.template import (
    AgentPhase,
    SystemTemplateMetadata,
    build_metadata,
    parse_file_name,
    resolve_template_prefix,
)
from phasegate.core.prompt.template_lint import lint_template
from phasegate.core.text.finding import Finding, LocatedFinding, locate_findings
from phasegate.engine.project.settings import (
    choose_prompt_files,
    find_template_prefix,
    load_settings,
)
from phasegate.errors import ConfigError, TemplateRefused
from phasegate.files.block_reader import reject_path_outside
from phasegate.prompts.templates import (
    SHIPPED_FOLDER,
    eject_template,
    find_project_root,
    find_template,
    list_markdown_files,
    list_shipped_templates,
    list_templates,
    read_template,
)

# Re-exported for interfaces
from phasegate.prompts.templates import Template as Template

_TEMPLATE_HINT = "pass a template file, or a folder that contains templates"


class TemplateFolder:
    """Templates that apply in a folder: the project's own before the shipped ones."""

    def __init__(self, folder: Path) -> None:
        effective = load_settings(folder)
        self._config = effective.config
        self._templates_path = self._config.paths.templates
        # Empty if the user has not accepted them: agents get the shipped ones then
        self._used_path = choose_prompt_files(effective.config, effective.trust, folder)[1]

    @property
    def _own_folder(self) -> Path:
        return find_project_root() / self._templates_path

    def list_templates(self) -> list[Template]:
        """List every template that an agent could get."""
        own = list_templates(self._own_folder) if self._used_path else []
        own_names = {template.name for template in own}
        return own + [
            template for template in list_shipped_templates() if template.name not in own_names
        ]

    def find_template(self, agent: str, phase: str) -> Template:
        """Return the template that an agent would get in a phase."""
        prefix, configured = find_template_prefix(self._config, agent)
        return find_template(
            prefix, phase, configured_agents=configured, templates_folder=self._used_path
        )

    def lint_templates(self, paths: Sequence[Path] = ()) -> list[LocatedFinding]:
        """Lint templates or folders of them; by default the project's own and the shipped ones."""
        chosen = paths or (self._own_folder, SHIPPED_FOLDER)
        files = _find_files(chosen, named=bool(paths))
        return [
            finding for path in files for finding in locate_findings(str(path), _lint_file(path))
        ]

    def eject_templates(
        self, agent: str | None, phase: str | None, *, force: bool
    ) -> dict[Path, bool]:
        """Copy the shipped template of an agent and a phase into the project, or all of them.

        Return whether each path was written: an existing file is replaced only with `force`.
        """
        reject_path_outside(find_project_root(), self._own_folder)
        root = SHIPPED_FOLDER.parent.parent
        if agent and phase:
            chosen = [find_template(resolve_template_prefix(agent), phase, root=root)]
        else:
            chosen = list_shipped_templates()

        return {
            self._own_folder / template.name.file_name: eject_template(
                template, self._own_folder, force
            )
            for template in chosen
        }


def describe_template(path: Path) -> SystemTemplateMetadata:
    """Return agent, phase and variables of the template in a file."""
    name = parse_file_name(path.name)
    if name is None:
        raise ConfigError(
            f"{path.name} is not a template name", "templates are named [AGENT]-[PHASE].md"
        )

    return build_metadata(name, read_template(path))


def _find_files(paths: Iterable[Path], named: bool) -> Iterator[Path]:
    """Yield the template files.

    Raise ConfigError for a path that the user named and that is missing or has no templates.
    """
    for path in paths:
        if path.is_dir():
            files = [*list_markdown_files(path)]
            if named and not files:
                raise ConfigError(f"no templates found in {path}", _TEMPLATE_HINT)

            yield from files
        elif named and not path.is_symlink() and not path.exists():
            raise ConfigError(f"{path} does not exist", _TEMPLATE_HINT)
        elif named:
            yield path


def _lint_file(path: Path) -> list[Finding]:
    """Return the findings about one template file and its name."""
    name = parse_file_name(path.name)
    if name is None:
        return [
            Finding(
                1,
                "bad-name",
                f"the name is not [AGENT]-[PHASE].md, with a phase of {', '.join(AgentPhase)}",
            )
        ]

    try:
        return lint_template(name.phase, read_template(path))
    except TemplateRefused as error:
        return [Finding(1, "refused", error.message)]
