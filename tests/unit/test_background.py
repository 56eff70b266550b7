"""A call that is repeated in a thread while a block runs."""

from __future__ import annotations

from threading import Event, current_thread, main_thread

import pytest

from phasegate.background import repeat_in_background


def test_a_call_is_repeated_in_a_thread_of_its_own_until_the_block_ends() -> None:
    threads = []
    thrice = Event()

    def call() -> None:
        threads.append(current_thread())
        if len(threads) >= 3:
            thrice.set()

    with repeat_in_background(call, 0.001, "repeated"):
        assert thrice.wait(60)

    (thread,) = {*threads}
    assert thread is not main_thread()
    assert thread.name == "repeated"
    assert not thread.is_alive()


def test_an_error_of_the_block_ends_the_thread_and_is_raised() -> None:
    called = Event()
    threads = []

    def call() -> None:
        threads.append(current_thread())
        called.set()

    def fail() -> None:
        with repeat_in_background(call, 0.001, "repeated"):
            assert called.wait(60)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fail()

    assert not threads[0].is_alive()
