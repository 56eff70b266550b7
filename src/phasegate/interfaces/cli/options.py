"""`--feature SLUG`, which every command takes that concerns one, and `--fleet`, for those that only look."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import click

from phasegate.engine.views.overview import feature_named
from phasegate.interfaces.cli.completion_values import feature_slugs, offering
from phasegate.interfaces.cli.live_display import waiting
from phasegate.interfaces.cli.render import FLEET, current_folder

F = TypeVar("F", bound=Callable[..., Any])


def named(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """The feature that is meant by what was typed."""
    return feature_named(str(current_folder()), value) if value else value


def reading_the_fleet(*, trails: bool) -> Callable[[F], F]:
    """`--fleet`: from there on the command reads a copy of the fleet's record, as it is now; its trails, if wanted."""

    def read(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            from phasegate.engine.fleet.view import up_to_date  # it loads obstore

            with waiting("reading the fleet's bucket"):
                ctx.meta[FLEET] = up_to_date(current_folder(), trails=trails)

    return click.option(
        "--fleet",
        is_flag=True,
        is_eager=True,  # before the name of a feature is looked up
        expose_value=False,
        callback=read,
        help="Features of the fleet, as its bucket has them now; from any machine.",
    )


def fleet_kept_up_to_date() -> AbstractContextManager[None]:
    """With `--fleet`, the copy is brought up to date again and again while the block runs."""
    copy = click.get_current_context().meta.get(FLEET)
    if copy is None:
        return nullcontext()
    from phasegate.engine.fleet.view import kept_up_to_date

    return kept_up_to_date(copy)


feature_option: Callable[[F], F] = click.option(
    "--feature",
    metavar="SLUG",
    shell_complete=offering(feature_slugs),
    callback=named,
    help="Which feature, where there are several; the beginning of its name is enough.",
)
