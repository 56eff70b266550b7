"""Complete names of this repository in the shell: agents, features, packages, workflows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from phasegate.config.settings import Config
    from phasegate.engine.views.overview import StoreReader

_MAX_DIGITS = 4
Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def complete_from(list_names: Callable[[], Iterable[str]]) -> Completer:
    """Return a completer for the names that a function lists.

    It completes nothing if the names cannot be read: a key press must not print an error.
    """

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        try:
            return sorted({name for name in list_names() if name.startswith(incomplete)})
        except Exception:
            return []

    return complete


class PackageIdParam(click.ParamType[str]):
    """The id of a work package. `wp1` is accepted for `WP01`.

    Any other text is passed on: the command reports the available ids.
    """

    name = "package"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Normalize a package id: `wp1` becomes `WP01`."""
        number = value[2:]
        is_id = (
            value[:2].upper() == "WP"
            and number.isdecimal()
            and number.isascii()
            and len(number) <= _MAX_DIGITS
        )

        if is_id:
            return f"WP{int(number):02}"
        return value


def list_workflow_types() -> Iterable[str]:
    """List the shipped and the configured workflows."""
    from phasegate.core.workflow.workflow_phases import WORKFLOWS

    return (*WORKFLOWS, *_load_config().workflows)


def list_agent_names() -> Iterable[str]:
    """List the configured agents."""
    return _load_config().agents


def list_feature_slugs() -> Iterable[str]:
    """List the recorded features."""
    return [slug for slug in _open_reader().features() if slug[:1].isdigit()]


def list_phase_keys() -> Iterable[str]:
    """List the phases of all recorded workflows."""
    return [key for row in _open_reader().workflows() for key in row.phases.split()]


def list_subjects() -> Iterable[str]:
    """List the arguments of `show`: packages, phases and features."""
    return [*list_package_ids(), *list_phase_keys(), *list_feature_slugs()]


def list_package_ids() -> Iterable[str]:
    """List the ids of all recorded packages."""
    reader = _open_reader()
    return [row.id for slug in reader.features() for row in reader.packages(slug)]


def _load_config() -> Config:
    from phasegate.engine.project.settings import load_settings

    return load_settings(Path.cwd()).config


def _open_reader() -> StoreReader:
    from phasegate.engine.views.overview import require_reader

    return require_reader(str(Path.cwd()))
