"""One line is one JSON-RPC message, or an error with the code that its sender expects."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from phasegate.core.text.jsonrpc import (
    INVALID_REQUEST,
    PARSE_ERROR,
    InvalidRpcMessage,
    decode_message,
    encode_message,
)


def test_a_message_is_encoded_as_one_line_and_decoded_again() -> None:
    line = encode_message({"id": 1, "method": "ping", "params": {"text": "a\nb"}})
    assert (line.count(b"\n"), line.endswith(b"\n")) == (1, True)
    message = decode_message(line)
    assert (message.id, message.method, bytes(message.params)) == (1, "ping", b'{"text":"a\\nb"}')


def test_a_response_has_a_result_or_an_error() -> None:
    assert decode_message(b'{"jsonrpc": "2.0", "id": 1, "result": null}').error is UNSET
    failed = decode_message(b'{"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "no"}}')
    assert getattr(failed.error, "message", "") == "no"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", PARSE_ERROR),
        (b'{"jsonrpc": "2.0", "method": "\xff"}', PARSE_ERROR),
        (b"[]", INVALID_REQUEST),
        (b'{"method": "ping"}', INVALID_REQUEST),
        (b'{"jsonrpc": "1.0", "method": "ping"}', INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1}', INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1, "result": 1, "error": {"code": 1}}', INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', INVALID_REQUEST),
        (b"[" * 100_000, INVALID_REQUEST),
        (b'{"jsonrpc": "2.0", "method": "x", "params": ' + b"[" * 100_000, PARSE_ERROR),
    ],
)
def test_what_is_no_message_is_refused(line: bytes, code: int) -> None:
    with pytest.raises(InvalidRpcMessage) as refused:
        decode_message(line)
    assert refused.value.code == code
