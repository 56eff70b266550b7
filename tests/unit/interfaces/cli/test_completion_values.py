"""Completion: names that fit, and never an error."""

from __future__ import annotations

from collections.abc import Iterable

import click
import pytest

from phasegate.interfaces.cli.completion_values import PackageIdParam, complete_from

COMMAND = click.Command("x")
CONTEXT, OPTION = click.Context(COMMAND), click.Option(["--x"])


def test_names_that_start_so_are_offered_once_and_sorted() -> None:
    complete = complete_from(lambda: ["beta", "alpha", "be", "beta"])
    assert complete(CONTEXT, OPTION, "be") == ["be", "beta"]
    assert complete(CONTEXT, OPTION, "x") == []


def test_a_list_that_cannot_be_read_offers_nothing() -> None:
    def broken() -> Iterable[str]:
        yield "a"
        raise OSError

    assert complete_from(broken)(CONTEXT, OPTION, "") == []


@pytest.mark.parametrize(
    ("typed", "id_"),
    [
        ("wp1", "WP01"),
        ("Wp007", "WP07"),
        ("WP12", "WP12"),
        ("wp1234", "WP1234"),
        ("wp12345", "wp12345"),
        ("wp", "wp"),
        ("wp-1", "wp-1"),
        ("wp1a", "wp1a"),
        ("wp\u0661", "wp\u0661"),
        ("06-implementation", "06-implementation"),
    ],
)
def test_a_short_id_is_completed_and_any_other_text_passed_on(typed: str, id_: str) -> None:
    assert PackageIdParam().convert(typed, None, None) == id_
