"""What a machine has read from a bucket must still be there."""

from __future__ import annotations

import pytest

from phasegate.storage.bucket.journal import LastReadPages
from phasegate.storage.bucket.verify_copy import find_lost_pages

HEADS = ("origin", "h1", "h2")
JOURNALS = {"001-a": ("origin", "a1", "a2"), "002-b": ("origin", "b1")}


@pytest.mark.parametrize(
    ("seen", "lost"),
    [
        (LastReadPages((2, "h2"), {"001-a": (2, "a2"), "002-b": (1, "b1")}), []),
        (LastReadPages((1, "h1"), {"001-a": (1, "a1")}), []),
        (LastReadPages((0, ""), {}), []),
        (LastReadPages((3, "h3"), {"001-a": (2, "a2")}), ["heads page 3"]),
        (LastReadPages((2, "x2"), {}), ["heads page 2"]),
        (LastReadPages((2, "h2"), {"001-a": (3, "a3")}), ["journal 001-a page 3"]),
        (LastReadPages((2, "h2"), {"001-a": (1, "x1")}), ["journal 001-a page 1"]),
        (LastReadPages((2, "h2"), {"003-c": (1, "c1")}), ["journal 003-c page 1"]),
    ],
)
def test_a_page_that_was_seen_and_is_missing_or_different_is_lost(
    seen: LastReadPages, lost: list[str]
) -> None:
    assert [*find_lost_pages(seen, HEADS, JOURNALS)] == lost
