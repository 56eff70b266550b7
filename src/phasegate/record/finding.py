"""What a verification finds."""

from __future__ import annotations

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """Something that is not as it was written: where, and why."""

    where: str
    why: str


class Findings:
    """Problems and notes, in the order in which they are to be read."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.notes: list[str] = []

    def add(self, where: str, why: str) -> None:
        self.problems.append(Problem(where, why))

    def add_first(self, where: str, why: str) -> None:
        self.problems.insert(0, Problem(where, why))

    def note(self, text: str) -> None:
        self.notes.append(text)
