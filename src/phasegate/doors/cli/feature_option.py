"""`--feature SLUG`, which every command takes that concerns one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

feature_option: Callable[[F], F] = click.option(
    "--feature", metavar="SLUG", help="Which feature, where there are several."
)
