"""How much a cage holds."""

from __future__ import annotations

from enum import StrEnum


class Level(StrEnum):
    """From weakest to strongest; docs/explanation/cage.md says what each one holds."""

    NONE = "none"
    WORKTREE = "worktree"
    OFFLINE = "offline"

    @property
    def is_sandboxed(self) -> bool:
        return self is not Level.NONE
