"""What the shell can complete besides commands and options: names that are in this repository."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from phasegate.config import Config
    from phasegate.record.reader import Reader

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def offering(names: Callable[[], Iterable[str]]) -> Completer:
    """The names that begin as typed. Where they cannot be found out, none: a key press is no place for an error."""

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        try:
            return sorted({name for name in names() if name.startswith(incomplete)})
        except Exception:
            return []

    return complete


def workflow_types() -> Iterable[str]:
    """The workflows, ours and those of the configuration."""
    from phasegate.rules.workflow import WORKFLOWS

    return (*WORKFLOWS, *_config().workflows)


def agent_names() -> Iterable[str]:
    """The agents of the configuration."""
    return _config().agents


def feature_slugs() -> Iterable[str]:
    """The features that are on record."""
    return [slug for slug in _reader().features() if slug[:1].isdigit()]


def package_ids() -> Iterable[str]:
    """The ids of all packages on record."""
    reader = _reader()
    return [row.id for slug in reader.features() for row in reader.packages(slug)]


def _config() -> Config:
    from phasegate.config import load
    from phasegate.record.location import main_tree

    return load(main_tree(Path.cwd()), os.environ).config


def _reader() -> Reader:
    from phasegate.record.location import locate
    from phasegate.record.reader import read_store

    reader = read_store(locate(Path.cwd(), os.environ))
    if reader is None:
        raise LookupError
    return reader
