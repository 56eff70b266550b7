"""Check that an event came from the forge: by a signature, or by the token that it was given."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

_SIGNATURE_PREFIX = "sha256="
# Header of the signature by forge; GitLab sends the secret itself
_SIGNATURE_HEADERS = {
    "github": ("x-hub-signature-256",),
    "gitea": ("x-gitea-signature", "x-forgejo-signature", "x-hub-signature-256"),
}
_GITLAB_HEADER = "x-gitlab-token"


def is_genuine_event(kind: str, headers: Mapping[str, str], body: bytes, secret: str) -> bool:
    """Return whether the sender knows the secret. Names of headers are in lower case.

    Without a secret, nothing is genuine.
    """
    if not secret:
        return False

    key = secret.encode()
    if kind not in _SIGNATURE_HEADERS:
        # The HTTP server decodes headers as Latin-1
        token = headers.get(_GITLAB_HEADER, "").encode("latin-1", errors="replace")
        return hmac.compare_digest(token, key)

    given = next((headers[name] for name in _SIGNATURE_HEADERS[kind] if name in headers), "")
    expected = hmac.new(key, body, "sha256").hexdigest()
    return hmac.compare_digest(given.removeprefix(_SIGNATURE_PREFIX).encode(), expected.encode())
