"""Only who knows the secret of a webhook can cause a look."""

from __future__ import annotations

import hmac

import pytest

from phasegate.core.forge.webhook import is_genuine_event

BODY = b'{"action": "submitted"}'
SECRET = "it's a s\u00e9cret"


def headers(kind: str, secret: str, body: bytes = BODY) -> dict[str, str]:
    """Sign as each forge documents it; an HTTP server decodes headers as Latin-1."""
    digest = hmac.new(secret.encode(), body, "sha256").hexdigest()
    return {
        "github": {"x-hub-signature-256": f"sha256={digest}"},
        "gitea": {"x-gitea-signature": digest},
        "gitlab": {"x-gitlab-token": secret.encode().decode("latin-1")},
    }[kind]


@pytest.mark.parametrize("kind", ["github", "gitlab", "gitea"])
def test_an_event_is_genuine_only_with_the_secret(kind: str) -> None:
    genuine = headers(kind, SECRET)
    assert is_genuine_event(kind, genuine, BODY, SECRET)
    for wrong in ({}, headers(kind, "guessed"), dict.fromkeys(genuine, ""), {"x-other": SECRET}):
        assert not is_genuine_event(kind, wrong, BODY, SECRET)
    assert not is_genuine_event(kind, headers(kind, ""), BODY, "")


@pytest.mark.parametrize("kind", ["github", "gitea"])
def test_a_signature_is_of_one_body_and_of_one_kind(kind: str) -> None:
    assert not is_genuine_event(kind, headers(kind, SECRET), BODY + b" ", SECRET)
    assert not is_genuine_event(kind, headers("gitlab", SECRET), BODY, SECRET)
    weak = {"x-hub-signature": "sha1=" + hmac.new(SECRET.encode(), BODY, "sha1").hexdigest()}
    assert not is_genuine_event(kind, weak, BODY, SECRET)
