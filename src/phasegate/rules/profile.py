"""Language profiles: what a kind of project needs, and which one a repository is.

The profiles themselves are data (`prompts/profiles/*.toml`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from json import loads as read_json
from tomllib import loads as read_toml

import msgspec

from phasegate.rules.work_package import PackageChecks


class Need(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file at the root of the repository that must be there; with `key`, one that must have that entry.

    Of a plain text file the key `*` asks for any line that is no comment.
    """

    file: str
    key: str = ""


class Command(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command, and what shows that the project has it: any of `needs`. Without needs it is always there."""

    run: str
    needs: tuple[Need, ...] = ()


class CoverageReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a coverage run leaves its report, and in which form."""

    path: str
    format: str


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a language's projects have in common. Of several commands for a purpose, the first that is there counts."""

    name: str
    title: str
    detect: tuple[str, ...]
    hints: tuple[str, ...]  # files that tell less, asked when no profile's `detect` is there
    layout: str
    pinned: str
    package: str
    constraints: tuple[str, ...]
    reference_commands: tuple[str, ...]
    style: tuple[str, ...]
    lock_files: tuple[str, ...]
    litter: tuple[str, ...]
    coverage_reports: tuple[CoverageReport, ...]
    setup: tuple[Command, ...] = ()
    build: tuple[Command, ...] = ()
    test: tuple[Command, ...] = ()
    lint: tuple[Command, ...] = ()
    typecheck: tuple[Command, ...] = ()
    coverage: tuple[Command, ...] = ()
    bin_folders: tuple[str, ...] = ()


def detect(profiles: Sequence[Profile], root_files: Iterable[str]) -> Profile | None:
    """The first profile of which a telling file is at the root; else the first of which a hint is."""
    names = {name.rstrip("/") for name in root_files}
    telling = (profile for profile in profiles if not names.isdisjoint(profile.detect))
    hinting = (profile for profile in profiles if not names.isdisjoint(profile.hints))
    return next(telling, None) or next(hinting, None)


def commands_of(profile: Profile | None, root: Mapping[str, str], checks: PackageChecks) -> dict[str, str]:
    """The commands to run, by purpose: the package's own, else the profile's that the project has.

    `root` holds the names at the root of the repository, with the text of those files that are asked for keys. A
    purpose that is missing from the result, or empty, is not asked for; the evidence says so.
    """
    found = {}
    for purpose in ("setup", "build", "test", "lint", "typecheck", "coverage"):
        own: str | None = getattr(checks, purpose)
        if own is not None:
            found[purpose] = own
        elif profile is not None:
            offered: tuple[Command, ...] = getattr(profile, purpose)
            run = next((command.run for command in offered if _is_there(command, root)), None)
            if run is not None:
                found[purpose] = run
    return found


def files_asked(profile: Profile) -> frozenset[str]:
    """The files at the root whose text `commands_of` looks into."""
    purposes = (profile.setup, profile.build, profile.test, profile.lint, profile.typecheck, profile.coverage)
    needs = (need for commands in purposes for command in commands for need in command.needs)
    return frozenset(need.file for need in needs if need.key)


def _is_there(command: Command, root: Mapping[str, str]) -> bool:
    return not command.needs or any(need.file in root and _has_key(need, root[need.file]) for need in command.needs)


def _has_key(need: Need, text: str) -> bool:
    """Whether a JSON or TOML file has an entry that is not empty; one that cannot be read has none."""
    if not need.key:
        return True
    if need.key == "*":
        return any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())
    try:
        value: object = read_json(text) if need.file.endswith(".json") else read_toml(text)
    except (ValueError, RecursionError):
        return False
    for part in need.key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value not in (None, "", [])
