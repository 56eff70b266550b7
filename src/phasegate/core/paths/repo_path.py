"""Check which paths inside a repository are safe, and which collide on other file systems."""

from __future__ import annotations

import re
from unicodedata import normalize

MAX_PATH_BYTES = 1024
MAX_NAME_BYTES = 255
# Matches nearly all paths: none of the checks below can fail for these.
_SAFE_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")


def find_path_problem(path: str) -> str | None:
    """Return why a path does not safely name one file inside the tree, or None if it does."""
    if _SAFE_PATH.fullmatch(path) and len(path) <= MAX_NAME_BYTES:
        return None
    if not path:
        return "is empty"
    if not path.isprintable():
        return "contains a control, invisible or undecodable character"
    if "\\" in path or "`" in path:
        return "contains a backslash or a backtick"
    if path[0] in "/~-" or path[1:2] == ":":
        return "is absolute, or starts with ~ or -"

    return _find_segment_problem(path)


def _find_segment_problem(path: str) -> str | None:
    """Return the problem of an unsafe part of the path, or None if all parts are safe."""
    segments = path.split("/")
    if any(segment in ("", ".", "..") for segment in segments):
        return "contains an empty, `.` or `..` part"
    if any(_is_git_directory(segment) for segment in segments):
        return "names a git directory"
    if any(segment != segment.strip() for segment in segments):
        return "has a part that starts or ends with a space"

    if len(path.encode()) > MAX_PATH_BYTES or any(
        len(segment.encode()) > MAX_NAME_BYTES for segment in segments
    ):
        return "is too long"

    return None


def _is_git_directory(segment: str) -> bool:
    """Recognize `.git` in any spelling that some file system resolves to it.

    These are other cases, trailing dots, the short name and an alternate data stream.
    """
    return segment.casefold().partition(":")[0].rstrip(". ") in (".git", "git~1")


def has_git_directory(path: str) -> bool:
    """Return True if any part of a path is a git directory."""
    return any(_is_git_directory(segment) for segment in path.split("/"))


def fold_path(path: str) -> str:
    """Return a form in which paths that differ only in case or Unicode normalization are equal."""
    if path.isascii():
        return path.lower()
    return normalize("NFC", normalize("NFD", path).casefold())


def list_path_and_parents(path: str) -> list[str]:
    """List the path itself and every folder above it, nearest first."""
    paths = [path]
    while (cut := path.rfind("/")) > 0:
        path = path[:cut]
        paths.append(path)
    return paths
