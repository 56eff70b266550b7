"""Shared arguments and options: WPnn, `--reason`, `--feature SLUG`, and `--fleet` for reading."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import click

from phasegate.engine.views.overview import resolve_feature
from phasegate.interfaces.cli.completion_values import (
    PackageIdParam,
    complete_from,
    list_feature_slugs,
    list_package_ids,
)
from phasegate.interfaces.cli.live_display import show_waiting
from phasegate.interfaces.cli.render import (
    FEATURE_KEY,
    FLEET_COPY_KEY,
    FLEET_ORDER_KEY,
    FreeText,
    current_folder,
)

F = TypeVar("F", bound=Callable[..., Any])


def resolve_feature_callback(
    ctx: click.Context, _param: click.Parameter, value: str | None
) -> str | None:
    """Resolve the prefix of a feature name to the full slug.

    `--feature` may also come before the command.

    A prefix for an order to the fleet is resolved in the record of the fleet.
    """
    value = value or ctx.meta.get(FEATURE_KEY)
    if value and FLEET_ORDER_KEY not in ctx.meta:
        return resolve_feature(str(current_folder()), value)
    return value


def _note_fleet_order(ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
    if value:
        ctx.meta[FLEET_ORDER_KEY] = True
    return value


def fleet_order_option(help_: str) -> Callable[[F], F]:
    """Return the option `--fleet` of a command that changes a feature of the fleet."""
    return click.option(
        "--fleet",
        is_flag=True,
        # Evaluated before `--feature`
        is_eager=True,
        callback=_note_fleet_order,
        help=help_,
    )


def fleet_view_option(*, with_trails: bool) -> Callable[[F], F]:
    """Return the option `--fleet`: the command reads a fresh copy of the fleet's record.

    The copy includes the audit trails if `with_trails` is set.
    """

    def read(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            # Imports obstore.
            from phasegate.engine.fleet.view import update_copy

            with show_waiting("reading the fleet's bucket"):
                ctx.meta[FLEET_COPY_KEY] = update_copy(current_folder(), trails=with_trails)

    return click.option(
        "--fleet",
        is_flag=True,
        # Evaluated before `--feature`, whose slug is looked up in the copy.
        is_eager=True,
        expose_value=False,
        callback=read,
        help="Show the features of the fleet, read from its bucket.",
    )


def keep_fleet_copy_current() -> AbstractContextManager[None]:
    """Return a context that updates the copy periodically; without `--fleet` it does nothing."""
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
    help="The feature, if there are several; a prefix of its name is enough.",
)

package_argument = click.argument(
    "work_package",
    type=PackageIdParam(),
    metavar="WPnn",
    shell_complete=complete_from(list_package_ids),
)
reason_option = click.option(
    "--reason",
    metavar="TEXT",
    type=FreeText(),
    required=True,
    help="The reason; it is recorded.",
)
