"""Decide the content of a role's prompt: its parts, its documents, and their size."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

import msgspec

from phasegate.core.prompt.document import ItemType

# Part by the name of an artifact; any other artifact is a document
_PART_BY_NAME = (
    ("package", re.compile(r"WP[0-9]+\.md")),
    ("findings", re.compile(r"replies\.md|your-last-answer\.md|since-last-round\.diff")),
    ("diff", re.compile(r"change-names\.txt|.*\.diff")),
    (
        "evidence",
        re.compile(
            r"evidence.*|remarks\.md|changed-together\.md|artifacts-left-out\.txt|WP[0-9]+/.*"
        ),
    ),
    ("findings", re.compile(r"findings.*|decision\.md|blocker\.md|notes-on-this-context")),
    ("commands", re.compile(r"commands\.md|current-specs\.md")),
)
CHARACTERS_PER_TOKEN = 4


class RoleNeed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one role gets in some phases.

    `max_tokens` limits each part; a part without a limit is not given. No phases means all others.
    """

    role: str
    why: str
    max_tokens: dict[str, int]
    phases: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    agent_file: Literal["writer", "critic", ""] = ""
    # Only the passages about the requirements of the package
    excerpts: bool = False

    def gives(self, part: str) -> bool:
        return part in self.max_tokens

    def max_characters(self, part: str) -> int:
        return self.max_tokens.get(part, 0) * CHARACTERS_PER_TOKEN

    def gives_document(self, name: str) -> bool:
        """Return whether a document of an earlier phase is given; `specs/` names a folder."""
        return any(
            entry in ("*", name) or (entry.endswith("/") and name.startswith(entry))
            for entry in self.documents
        )


class AgentFileParts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Titles of an agent file's sections to omit, and the first words of the critic's section."""

    left_out: tuple[str, ...]
    critic: str


class RoleNeeds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table of all roles, and what each part is for."""

    parts: dict[str, str]
    agent_file: AgentFileParts
    needs: tuple[RoleNeed, ...]

    def find(self, role: str, phase: str) -> RoleNeed:
        """Return the first entry for a role in a phase."""
        return next(
            need
            for need in self.needs
            if need.role == role and (not need.phases or phase in need.phases)
        )


def classify_item(type_: ItemType, name: str, agent_files: Collection[str] = ()) -> str:
    """Return the part of the prompt that a context item belongs to."""
    if type_ is ItemType.FILE and name.rpartition("/")[2].startswith(_PROJECT_TEXTS):
        return "commands"
    if type_ is ItemType.FILE:
        return "files"
    if name in agent_files:
        return "agent_file"

    return next((part for part, form in _PART_BY_NAME if form.fullmatch(name)), "documents")


_PROJECT_TEXTS = ("CONTRIBUTING", "CHANGELOG", "CHANGES", "HISTORY", "NEWS")
