"""Find secrets in added content, by a short list of distinctive formats."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

ALLOW_MARKER = b"phasegate:allow-secret"
MAX_SECRETS = 50


class AddedContent(NamedTuple):
    """Content that a commit added: new files, or the new lines of changed files."""

    path: str
    text: bytes
    commit: str = ""


class SecretFinding(NamedTuple):
    """The location of a probable secret; the secret itself is not stored."""

    path: str
    line: int
    kind: str
    commit: str
    is_allowed: bool

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}"
        return f"{self.kind} in {where}" + (f" (commit {self.commit[:10]})" if self.commit else "")


# (kind, literal text that must occur, exact pattern). Searching for the literal text first is what
# makes it fast.
_SECRET_PATTERNS: tuple[tuple[str, bytes, re.Pattern[bytes]], ...] = (
    (
        "private key",
        b"PRIVATE KEY",
        re.compile(rb"-----BEGIN (?:[A-Z0-9]{2,12} ){0,2}PRIVATE KEY(?: BLOCK)?-----"),
    ),
    ("AWS access key", b"AKIA", re.compile(rb"(?<![A-Za-z0-9])AKIA[A-Z2-7]{16}(?![A-Za-z0-9])")),
    ("AWS temporary key", b"ASIA", re.compile(rb"(?<![A-Za-z0-9])ASIA[A-Z2-7]{16}(?![A-Za-z0-9])")),
    (
        "GitHub token",
        b"gh",
        re.compile(rb"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{36,251}(?![A-Za-z0-9])"),
    ),
    (
        "GitHub token",
        b"github_pat_",
        re.compile(rb"(?<![A-Za-z0-9])github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    ),
    ("GitLab token", b"glpat-", re.compile(rb"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20,60}")),
    (
        "Slack token",
        b"xox",
        re.compile(rb"(?<![A-Za-z0-9])xox[abeoprs]-[0-9]{10,14}-[A-Za-z0-9-]{20,200}"),
    ),
    (
        "Slack webhook",
        b"hooks.slack.com",
        re.compile(rb"hooks\.slack\.com/services/T[A-Z0-9]{8,12}/B[A-Z0-9]{8,12}/\w{24}"),
    ),
    (
        "Anthropic key",
        b"sk-ant-",
        re.compile(rb"(?<![A-Za-z0-9])sk-ant-[a-z]{2,6}[0-9]{2}-[A-Za-z0-9_-]{80,120}"),
    ),
    (
        "OpenAI key",
        b"T3BlbkFJ",
        re.compile(
            rb"(?<![A-Za-z0-9])sk-(?:[a-z]{2,10}-)?[A-Za-z0-9_-]{20,80}T3BlbkFJ[A-Za-z0-9_-]{20,80}"
        ),
    ),
    ("Google key", b"AIza", re.compile(rb"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])")),
    ("Stripe key", b"k_live_", re.compile(rb"(?<![A-Za-z0-9])[rs]k_live_[A-Za-z0-9]{24,99}")),
    ("npm token", b"npm_", re.compile(rb"(?<![A-Za-z0-9])npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])")),
    (
        "PyPI token",
        b"pypi-",
        re.compile(rb"(?<![A-Za-z0-9])pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,250}"),
    ),
)


def keep_added_lines(base: bytes | None, new: bytes) -> bytes:
    """Return the lines of `new` that do not occur in `base`.

    Other lines are blanked, so that line numbers stay correct.
    """
    if base is None:
        return new

    old = frozenset(base.split(b"\n"))
    return b"\n".join(b"" if line in old else line for line in new.split(b"\n"))


def find_secrets(added: Iterable[AddedContent]) -> list[SecretFinding]:
    """Return every probable secret in added content.

    A secret with an allow comment on its line is marked as allowed.
    """
    found: dict[SecretFinding, None] = {}

    for one in added:
        for kind, hint, form in _SECRET_PATTERNS:
            if hint in one.text:
                found.update(
                    (_make_finding(one, kind, match), None) for match in form.finditer(one.text)
                )

        # Allowed secrets do not count towards the limit
        if sum(not secret.is_allowed for secret in found) >= MAX_SECRETS:
            break

    return [*found]


def _make_finding(added: AddedContent, kind: str, match: re.Match[bytes]) -> SecretFinding:
    """Create the finding of a match, with its line and whether a comment allows it."""
    text = added.text
    start = text.rfind(b"\n", 0, match.start()) + 1
    end = text.find(b"\n", match.end())
    line = text[start : end if end >= 0 else len(text)]

    return SecretFinding(
        path=added.path,
        line=text.count(b"\n", 0, start) + 1,
        kind=kind,
        commit=added.commit,
        is_allowed=ALLOW_MARKER in line,
    )
