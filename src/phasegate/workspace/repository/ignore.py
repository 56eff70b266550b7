"""Decide which files are ignored: by the rules of the base commit, and a list of tool leftovers.

The rules are those of git, read from the base commit's own `.gitignore` files and never from those
on disk, which an agent can edit. The matcher is the one for file scopes, because `pathspec` can
stall on file names of agents. A rare pattern with `**` inside matches at the first position
only; the path then counts as not ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from phasegate.core.paths.glob import compile_pattern

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    folders_only: bool
    by_name: bool
    ignores: bool


class IgnoreRules:
    """Decides whether paths that are not in the base commit are ignored.

    Ignored folders are not searched.
    """

    def __init__(self, files: Mapping[str, bytes], litter: Iterable[str] = ()) -> None:
        """Parse `.gitignore` files, given by folder (`""` for the root), and patterns of tool
        leftovers.
        """
        self._rules = {
            folder: _parse_rules(text.decode(errors="replace")) for folder, text in files.items()
        }
        self._litter = _parse_rules("\n".join(litter))

    def is_ignored(self, path: str, is_folder: bool) -> bool:
        """Return True if a path is ignored.

        The nearest `.gitignore` with a matching rule decides, then the list of tool leftovers.
        """
        folder = path

        while folder:
            folder = folder.rpartition("/")[0]
            if (rules := self._rules.get(folder)) is not None:
                opinion = _match_rules(rules, path[len(folder) + 1 if folder else 0 :], is_folder)
                if opinion is not None:
                    return opinion

        return self.is_litter(path, is_folder)

    def is_litter(self, path: str, is_folder: bool) -> bool:
        return bool(_match_rules(self._litter, path, is_folder))


def _match_rules(rules: tuple[_Rule, ...], path: str, is_folder: bool) -> bool | None:
    """Return the decision of the last rule that matches the path itself, or None if none does."""
    name = path.rpartition("/")[2]

    for rule in rules:
        text = name if rule.by_name else path
        if (
            (is_folder or not rule.folders_only)
            and (found := rule.pattern.match(text))
            and found.end() == len(text)
        ):
            return rule.ignores

    return None


def _parse_rules(text: str) -> tuple[_Rule, ...]:
    """Return the rules of one file, the last one first."""
    lines = (line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n"))
    rules = (_parse_rule(line) for line in lines if line.strip() and not line.startswith("#"))
    return tuple(rule for rule in rules if rule is not None)[::-1]


def _parse_rule(line: str) -> _Rule | None:
    """Parse a line of .gitignore, or return None if it matches nothing."""
    ignores = not line.startswith("!")
    text = _ESCAPE.sub(_escape_literal, _strip_trailing_blanks(line if ignores else line[1:]))
    folders_only = text.endswith("/")
    text = text.removesuffix("/")
    if not text.strip("/"):
        return None
    # `folder/**` matches everything below the folder, but not the folder itself
    if text.endswith("/**"):
        text += "/*"

    by_name = "/" not in text
    return _Rule(compile_pattern("/" + text.removeprefix("/")), folders_only, by_name, ignores)


def _strip_trailing_blanks(line: str) -> str:
    kept = line.rstrip(" ")
    if kept.endswith("\\") and not kept.endswith("\\\\") and len(kept) < len(line):
        return kept + " "
    return kept


def _escape_literal(escaped: re.Match[str]) -> str:
    """Escape a literal character so that the glob matcher understands it."""
    character = escaped[1]
    if character in "*?[":
        return f"[{character}]"
    return character
