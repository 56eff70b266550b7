"""The measure of growth that other tests rely on."""

from __future__ import annotations

import gc

import pytest

from support.growth import assert_grows_no_faster_than_its_input


def linear(size: int) -> None:
    sum(range(size))


def quadratic(size: int) -> None:
    for _ in range(size):
        sum(range(size))


def test_what_is_quadratic_is_refused() -> None:
    with pytest.raises(AssertionError, match="grew too fast at 8 times the input"):
        assert_grows_no_faster_than_its_input(quadratic, int, 200, 1_600)
    assert gc.isenabled()


def test_what_is_linear_passes() -> None:
    assert_grows_no_faster_than_its_input(linear, int, 10_000, 80_000)
    assert gc.isenabled()


def test_what_takes_no_time_passes() -> None:
    assert_grows_no_faster_than_its_input(len, "x".__mul__, 10, 80)


def test_noise_in_some_attempts_is_forgiven() -> None:
    disturbances = iter([10])

    def slow_once(size: int) -> None:
        linear(size)
        if size == 3_200_000:
            linear(size * next(disturbances, 0))

    assert_grows_no_faster_than_its_input(slow_once, int, 400_000, 3_200_000)


def test_a_step_too_small_to_tell_is_refused() -> None:
    with pytest.raises(AssertionError, match="cannot tell"):
        assert_grows_no_faster_than_its_input(linear, int, 10, 20)
