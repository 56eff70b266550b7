"""`--feature SLUG`, which every command takes that concerns one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from phasegate.doors.cli.offering import feature_slugs, offering

F = TypeVar("F", bound=Callable[..., Any])

feature_option: Callable[[F], F] = click.option(
    "--feature", metavar="SLUG", shell_complete=offering(feature_slugs), help="Which feature, where there are several."
)
