"""Commits, and whether their subject names the package."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_TYPE = r"[a-z]{2,12}"


class Commit(NamedTuple):
    id: str
    message: str

    @property
    def subject(self) -> str:
        return self.message.partition("\n")[0]


def find_unlabelled_commits(package: str, commits: Sequence[Commit]) -> list[Commit]:
    """Return commits whose subject is neither `WP01: text` nor `feat(WP01): text [FR-AUTH-001]`.

    Any conventional type is accepted (`fix`, `test`, `docs` ...); requirement ids in brackets are
    optional.
    """
    label = re.compile(rf"(?:{re.escape(package)}|{_TYPE}\({re.escape(package)}\)!?): \S")
    return [commit for commit in commits if not label.match(commit.message)]
