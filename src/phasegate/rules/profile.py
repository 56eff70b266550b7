"""Language profiles: what agents are told about a kind of project, and what its tools leave behind.

The profiles themselves are data (`prompts/profiles/*.toml`). How a project is set up and checked is detected from its
own files: `rules/project_kinds.py`.
"""

from __future__ import annotations

import msgspec


class CoverageReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a coverage run leaves its report, and in which form."""

    path: str
    format: str


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a language's projects have in common."""

    name: str
    title: str
    layout: str
    pinned: str
    package: str
    constraints: tuple[str, ...]
    reference_commands: tuple[str, ...]
    style: tuple[str, ...]
    lock_files: tuple[str, ...]
    litter: tuple[str, ...]
    coverage_reports: tuple[CoverageReport, ...]
    bin_folders: tuple[str, ...] = ()
