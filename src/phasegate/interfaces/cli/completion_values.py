"""What the shell can complete besides commands and options: names that are in this repository."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from phasegate.config import Config
    from phasegate.engine.views.overview import StoreReader

_MAX_DIGITS = 4
Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def complete_from(list_names: Callable[[], Iterable[str]]) -> Completer:
    """The names that begin as typed.

    Where they cannot be found out, none: a key press is no place for an error.
    """

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        try:
            return sorted({name for name in list_names() if name.startswith(incomplete)})
        except Exception:
            return []

    return complete


class PackageIdParam(click.ParamType[str]):
    """WP01; `wp1` is taken for it.

    What is no such id stays as it is: the command says what it knows.
    """

    name = "package"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
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
    """The workflows, ours and those of the configuration."""
    from phasegate.core.workflow.workflows import WORKFLOWS

    return (*WORKFLOWS, *_load_config().workflows)


def list_agent_names() -> Iterable[str]:
    """The agents of the configuration."""
    return _load_config().agents


def list_feature_slugs() -> Iterable[str]:
    """The features that are on record."""
    return [slug for slug in _open_reader().features() if slug[:1].isdigit()]


def list_package_ids() -> Iterable[str]:
    """The ids of all packages on record."""
    reader = _open_reader()
    return [row.id for slug in reader.features() for row in reader.packages(slug)]


def _load_config() -> Config:
    from phasegate.engine.project.settings import load_settings

    return load_settings(Path.cwd()).config


def _open_reader() -> StoreReader:
    from phasegate.engine.views.overview import require_reader

    return require_reader(str(Path.cwd()))
