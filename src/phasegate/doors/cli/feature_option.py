"""`--feature SLUG`, which every command takes that concerns one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from phasegate.doors.cli.offering import feature_slugs, offering
from phasegate.doors.cli.render import current_folder
from phasegate.engine.views import feature_named

F = TypeVar("F", bound=Callable[..., Any])


def named(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """The feature that is meant by what was typed."""
    return feature_named(str(current_folder()), value) if value else value


feature_option: Callable[[F], F] = click.option(
    "--feature",
    metavar="SLUG",
    shell_complete=offering(feature_slugs),
    callback=named,
    help="Which feature, where there are several; the beginning of its name is enough.",
)
