"""The reason of a notification may be in the words of an agent: a chat must not act on them."""

from __future__ import annotations

import json

import msgspec
import pytest

from phasegate.core.display.notification import Notification, build_http_message


def post(reason: str) -> str:
    notification = Notification(
        id="1",
        type="person.needed",
        timestamp="2026-01-01T00:00:00Z",
        repository="shop",
        feature="001-a",
        package="WP01",
        outcome="blocked",
        reason=reason,
        command="phasegate status",
    )
    message = build_http_message("slack+https://chat.invalid/hook", notification, 0)
    return str(json.loads(message.body)["text"])


@pytest.mark.parametrize(
    ("reason", "trigger"),
    [
        ("<!channel> look", "<!channel>"),
        ("<@U123> look", "<@U123>"),
        ("<https://evil.invalid|approve here>", "<https://"),
        ("see https://evil.invalid/pixel", "https://evil"),
        ("@channel look", "@channel"),
    ],
)
def test_a_chat_acts_on_no_word_of_an_agent(reason: str, trigger: str) -> None:
    text = post(reason)
    assert trigger in reason, "the control"
    assert trigger not in text
    assert post("the tests fail: 1 of 2") == (
        "shop: 001-a WP01: blocked\nthe tests fail: 1 of 2\nthen: phasegate status"
    )


def test_a_notification_of_no_feature_has_no_empty_part() -> None:
    notification = Notification(
        id="1",
        type="run.ended",
        timestamp="2026-01-01T00:00:00Z",
        repository="shop",
        feature="",
        package="",
        outcome="this is a test",
        reason="",
        command="",
    )
    assert notification.title == "shop: this is a test"
    named = msgspec.structs.replace(notification, feature="001-a")
    assert named.title == "shop: 001-a: this is a test"
