"""The project's structure as an indented list of its files, folded to fit."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from phasegate.rules.hidden import visible
from phasegate.rules.tokens import estimate_tokens

SHOWN = 60  # entries of one folder; the rest is counted
_JOINED = 8  # folders on one row
_MISSES = 20  # folders that do not fit, until no other is tried


class FoldPhrases(NamedTuple):
    """How what is folded is counted: files alone, or files in folders."""

    files: str
    nested: str


class _Folder:
    """A folder: its files, its folders, and how many lie below it at any depth."""

    __slots__ = ("file_count", "files", "folder_count", "folders")

    def __init__(self, files: list[str]) -> None:
        self.files = files
        self.folders: dict[str, _Folder] = {}
        self.file_count = len(files)
        self.folder_count = 0

    def add(self, name: str, folder: _Folder) -> None:
        self.folders[name] = folder
        self.file_count += folder.file_count
        self.folder_count += folder.folder_count + 1


class _Row(NamedTuple):
    """One line of the tree, and the folder that it stands for; `counts` says what is not shown below it."""

    depth: int
    label: str
    counts: str = ""
    folder: _Folder | None = None


def project_tree(paths: Iterable[str], room_tokens: int, phrases: FoldPhrases) -> str:
    """The tree of the paths. Folders are opened level by level while there is room; the others show what they hold."""
    root = _Row(-1, "", folder=_root(paths))
    opened: dict[int, list[_Row]] = {}
    waiting = deque([root])
    misses = 0
    while waiting and misses < _MISSES:
        row = waiting.popleft()
        rows = _fitting_rows(row, (SHOWN, 20, 5, 0) if row is root else (SHOWN,), room_tokens, phrases)
        if rows is None:
            misses += 1
        else:
            room_tokens -= _cost(rows)
            opened[id(row.folder)] = rows
            waiting.extend(inner for inner in rows if inner.folder)
    return "\n".join(_lines(root, opened))


def _root(paths: Iterable[str]) -> _Folder:
    files: defaultdict[str, list[str]] = defaultdict(list, {"": []})
    current, names = "", files[""]
    for path in paths:
        folder, _, name = path.rpartition("/")
        if folder != current:  # git lists by folder: most paths lie beside the one before
            current, names = folder, files[folder]
        names.append(name)
    _add_ancestors(files)
    folders = {name: _Folder(found) for name, found in files.items()}
    for name in sorted(filter(None, folders), key=len, reverse=True):  # what lies below has the longer name
        parent, _, last = name.rpartition("/")
        folders[parent].add(last, folders[name])
    return folders[""]


def _add_ancestors(files: defaultdict[str, list[str]]) -> None:
    for name in [*files]:
        while name and (name := name.rpartition("/")[0]) not in files:
            files[name] = []


def _fitting_rows(row: _Row, limits: Iterable[int], room_tokens: int, phrases: FoldPhrases) -> list[_Row] | None:
    """The rows below a folder, as many of them as one of the limits allows and the room takes."""
    assert row.folder is not None
    for limit in limits:
        rows = _rows(row.folder, row.depth + 1, limit, phrases)
        if _cost(rows) <= room_tokens:
            return rows
    return None


def _rows(folder: _Folder, depth: int, limit: int, phrases: FoldPhrases) -> list[_Row]:
    """Folders first, then files, then the count of the rest."""
    names = sorted(folder.folders)
    rows = [_folder_row(depth, name, folder.folders[name], phrases) for name in names[:limit]]
    room = limit - len(rows)
    rows += [_Row(depth, visible(name)) for name in sorted(folder.files)[:room] if name]
    rest = [folder.folders[name] for name in names[limit:]]
    files = sum(one.file_count for one in rest) + max(0, len(folder.files) - room)
    if rest or files:
        rows.append(_Row(depth, "", _counts(files, sum(one.folder_count + 1 for one in rest), phrases)))
    return rows


def _folder_row(depth: int, name: str, folder: _Folder, phrases: FoldPhrases) -> _Row:
    """A folder that holds nothing but one other is shown together with it: `src/main/`."""
    parts = [visible(name)]
    while not folder.files and len(folder.folders) == 1 and len(parts) < _JOINED:
        [(inner, folder)] = folder.folders.items()
        parts.append(visible(inner))
    return _Row(depth, "/".join(parts) + "/", _counts(folder.file_count, folder.folder_count, phrases), folder)


def _counts(files: int, folders: int, phrases: FoldPhrases) -> str:
    phrase = phrases.nested if folders else phrases.files
    return phrase.format(files=f"{files:_}".replace("_", " "), folders=f"{folders:_}".replace("_", " "))


def _cost(rows: list[_Row]) -> int:
    """What the rows cost while all of their folders are folded."""
    return estimate_tokens("\n".join(_line(row, folded=True) for row in rows))


def _lines(root: _Row, opened: dict[int, list[_Row]]) -> Iterator[str]:
    stack = [*reversed(opened.get(id(root.folder), []))]
    while stack:
        row = stack.pop()
        below = opened.get(id(row.folder)) if row.folder else None
        yield _line(row, folded=below is None)
        stack.extend(reversed(below or []))


def _line(row: _Row, folded: bool) -> str:
    return "  " * row.depth + (f"{row.label} {row.counts}".strip(" ") if folded else row.label)
