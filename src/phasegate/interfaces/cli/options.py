"""`--feature SLUG`, which every command takes that concerns one, and `--fleet`, for those that only
look.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import click

from phasegate.engine.views.overview import resolve_feature
from phasegate.interfaces.cli.completion_values import complete_from, list_feature_slugs
from phasegate.interfaces.cli.live_display import show_waiting
from phasegate.interfaces.cli.render import FLEET_COPY_KEY, current_folder

F = TypeVar("F", bound=Callable[..., Any])


def resolve_feature_callback(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> str | None:
    """The feature that is meant by what was typed."""
    if value:
        return resolve_feature(str(current_folder()), value)
    return value


def fleet_view_option(*, with_trails: bool) -> Callable[[F], F]:
    """`--fleet`: from there on the command reads a copy of the fleet's record, as it is now.

    Its trails, if wanted.
    """

    def read(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            # It loads obstore
            from phasegate.engine.fleet.view import update_copy

            with show_waiting("reading the fleet's bucket"):
                ctx.meta[FLEET_COPY_KEY] = update_copy(current_folder(), trails=with_trails)

    return click.option(
        "--fleet",
        is_flag=True,
        # Before the name of a feature is looked up
        is_eager=True,
        expose_value=False,
        callback=read,
        help="Features of the fleet, as its bucket has them now; from any machine.",
    )


def keep_fleet_copy_current() -> AbstractContextManager[None]:
    """With `--fleet`, the copy is brought up to date again and again while the block runs."""
    copy = click.get_current_context().meta.get(FLEET_COPY_KEY)
    if copy is None:
        return nullcontext()

    from phasegate.engine.fleet.view import keep_copy_updated

    return keep_copy_updated(copy)


feature_option: Callable[[F], F] = click.option(
    "--feature",
    metavar="SLUG",
    shell_complete=complete_from(list_feature_slugs),
    callback=resolve_feature_callback,
    help="Which feature, where there are several; the beginning of its name is enough.",
)
