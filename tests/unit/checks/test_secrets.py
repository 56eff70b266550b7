"""Secrets in what was added. The keys are put together when the tests run: this file holds none."""

from __future__ import annotations

import pytest

from phasegate.checks.secrets import AddedContent, find_secrets, keep_added_lines
from support.growth import assert_grows_no_faster_than_its_input

LETTERS = "aB3dE6gH9jK2mN5pQ8sT1vW4xY7zA0cD"
KEYS = {
    "private key": "-----BEGIN {}PRIVATE KEY-----".format("RSA "),
    "private key, PKCS 8": "-----BEGIN {}KEY-----".format("PRIVATE "),
    "private key, OpenSSH": "-----BEGIN {} PRIVATE KEY-----".format("OPENSSH"),
    "private key, PGP": "-----BEGIN PGP {} KEY BLOCK-----".format("PRIVATE"),
    "AWS": "AKIA" + "Q3EGRFXO5KZ2TB7A",
    "AWS, temporary": "ASIA" + "Q3EGRFXO5KZ2TB7A",
    "GitHub": "ghp_" + (LETTERS * 2)[:36],
    "GitHub, fine-grained": "github_pat_" + LETTERS[:22] + "_" + (LETTERS * 2)[:59],
    "GitLab": "glpat-" + LETTERS[:20],
    "Slack": "xoxb-" + "123456789012-" + LETTERS[:24],
    "Slack webhook": "https://hooks.slack.com/services/" + "T01ABCDEF/B01ABCDEF/" + LETTERS[:24],
    "Anthropic": "sk-ant-" + "api03-" + (LETTERS * 3)[:95],
    "OpenAI": "sk-" + LETTERS[:20] + "T3Blbk" + "FJ" + LETTERS[:20],
    "OpenAI, project": "sk-proj-" + (LETTERS * 2)[:58] + "T3Blbk" + "FJ" + (LETTERS * 2)[:58],
    "Google": "AIza" + (LETTERS * 2)[:35],
    "Stripe": "sk_live_" + LETTERS[:24],
    "npm": "npm_" + (LETTERS * 2)[:36],
}


@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
@pytest.mark.parametrize(
    "form", ["{}", "KEY={}", 'key = "{}"\n', "x\ny: '{}',\n", "https://user:{}@host/"]
)
def test_a_key_is_found_wherever_it_stands(key: str, form: str) -> None:
    found = find_secrets([AddedContent("a.py", form.format(key).encode())])
    assert len(found) == 1
    assert not found[0].is_allowed
    assert key not in str(found[0])


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN PUBLIC KEY-----",
        "-----BEGIN CERTIFICATE-----",
        "AKIAIOSFODNN7",
        "xAKIAQ3EGRFXO5KZ2TB7A",
        "AKIAQ3EGRFXO5KZ2TB7A9Z",
        "ghp_short",
        "sk-learn and sk-ant-colony",
        "AIzaSomething",
        "task-" + "a" * 60,
        "npm_config_cache",
        "d41d8cd98f00b204e9800998ecf8427e",
        "sha512-" + "A" * 86 + "==",
        "xoxb-your-token-here",
    ],
)
def test_what_only_resembles_a_key_is_let_be(text: str) -> None:
    assert find_secrets([AddedContent("a.py", text.encode())]) == []


def test_a_line_of_the_base_is_not_the_agents() -> None:
    old = f"key = '{KEYS['AWS']}'\n".encode()
    moved = b"# new\n" + old
    assert find_secrets([AddedContent("a.py", keep_added_lines(old, moved))]) == []
    assert find_secrets([AddedContent("a.py", keep_added_lines(b"", moved))])[0].line == 2


def test_a_comment_on_the_line_allows_a_dummy_and_is_reported() -> None:
    allowed = f"KEY = '{KEYS['AWS']}'  # phasegate:allow-secret\n".encode()
    other = f"KEY = '{KEYS['GitHub']}'\n".encode()
    found = find_secrets([AddedContent("a.py", allowed * 60 + other)])
    assert [secret.is_allowed for secret in found].count(False) == 1


def test_looking_grows_with_the_size_of_the_text() -> None:
    def full_of_hints(size: int) -> list[AddedContent]:
        hints = (b"sk-", b"T3BlbkFJ", b"AKIA", b"ghp_", b"-----BEGIN A ")
        return [AddedContent("a", b"".join(hint * (size // len(hint)) for hint in hints))]

    assert_grows_no_faster_than_its_input(find_secrets, full_of_hints, 50_000, 400_000)
