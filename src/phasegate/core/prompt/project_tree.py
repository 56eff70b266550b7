"""Render the project's structure as an indented list of files, folded to fit a token limit."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from phasegate.core.paths.repo_path import list_path_and_parents
from phasegate.core.prompt.hidden_characters import quote_name
from phasegate.core.text.token_estimate import estimate_tokens

# Entries shown of one folder; the rest is counted
MAX_ENTRIES_PER_FOLDER = 60
# Folders joined on one row
_MAX_JOINED_FOLDERS = 8
# Sorts after every other character
_LAST_CHARACTER = "\U0010ffff"
# Number of folders that did not fit after which no other is tried
_MAX_MISSES = 20
# Small folders with the same counts share one row, such as those of 35 languages
_MIN_ALIKE_FOLDERS = 5
_MAX_ALIKE_FILES = 5


class FoldPhrases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Phrases for the counts of a folded folder: files alone, or files in folders."""

    files: str
    nested: str
    alike: str


class _Folder:
    """A folder: its first files, its subfolders, and counts of its content at any depth."""

    __slots__ = ("file_count", "files", "folder_count", "folders", "own_count")

    def __init__(self) -> None:
        self.files: list[str] = []
        self.own_count = 0
        self.folders: dict[str, _Folder] = {}
        self.file_count = 0
        self.folder_count = 0

    def add_files(self, names: list[str], count: int) -> None:
        """Add files in order: as many names as can be shown, and their total count."""
        self.files += names[: MAX_ENTRIES_PER_FOLDER - len(self.files)]
        self.own_count += count
        self.file_count += count

    def add_folder(self, name: str, folder: _Folder) -> None:
        self.folders[name] = folder
        self.file_count += folder.file_count
        self.folder_count += folder.folder_count + 1


class _Row(NamedTuple):
    """One line of the tree, and the folder that it represents.

    `counts` describes the entries below it that are not shown.
    """

    depth: int
    label: str
    counts: str = ""
    folder: _Folder | None = None
    # From the root, with a slash at the end; for a folder
    path: str = ""


def render_project_tree(
    paths: Iterable[str],
    remaining_tokens: int,
    phrases: FoldPhrases,
    focus: Iterable[str] = (),
) -> str:
    """Render the tree of the paths.

    Folders are expanded level by level while there is room; the others show counts. With `focus`,
    only the folders of these paths are expanded.
    """
    root = _Row(-1, "", folder=_build_root(paths))
    opened: dict[int, list[_Row]] = {}
    waiting = deque([root])
    misses = 0
    # A folder and all above it
    focused = {f"{folder}/" for path in focus for folder in list_path_and_parents(path)[1:]}

    while waiting and misses < _MAX_MISSES:
        row = waiting.popleft()
        if focused and row is not root and row.path not in focused:
            continue

        limits = (MAX_ENTRIES_PER_FOLDER, 20, 5, 0) if row is root else (MAX_ENTRIES_PER_FOLDER,)
        rows = _find_fitting_rows(row, limits, remaining_tokens, phrases)

        if rows is None:
            misses += 1
        else:
            remaining_tokens -= _estimate_folded_tokens(rows)
            opened[id(row.folder)] = rows
            waiting.extend(inner for inner in rows if inner.folder)

    return "\n".join(_render_lines(root, opened))


def _build_root(paths: Iterable[str]) -> _Folder:
    """Build all folders in one pass over the sorted paths, one folder at a time."""
    listed = sorted(paths)
    folders: defaultdict[str, _Folder] = defaultdict(_Folder)
    mixed: set[str] = set()
    at = 0

    while at < len(listed):
        folder = listed[at].rpartition("/")[0]
        if folder in mixed:
            end = at + 1
        else:
            end = _find_run_end(listed, at, folder)

        if end == at + 1:
            mixed.add(folder)

        start = len(folder) + 1 if folder else 0
        folders[folder].add_files(
            [path[start:] for path in listed[at : min(end, at + MAX_ENTRIES_PER_FOLDER)]], end - at
        )
        at = end

    return _link_folders(folders)


def _find_run_end(listed: list[str], at: int, folder: str) -> int:
    """Return where the paths below a folder end, if all of them are directly in it.

    Otherwise return the index after the first one.
    """
    below = folder + "/" if folder else ""
    end = bisect_left(listed, below + _LAST_CHARACTER, at)
    slashes = "".join(listed[at:end]).count("/")
    if slashes == (end - at) * below.count("/"):
        return end

    return at + 1


def _link_folders(folders: defaultdict[str, _Folder]) -> _Folder:
    """Add every folder to its parent, deepest first.

    Sorting by length suffices, because a subfolder has a longer name.
    """
    root = folders[""]
    for name in [*folders]:
        while name and (name := name.rpartition("/")[0]) not in folders:
            folders[name] = _Folder()

    for name in sorted(filter(None, folders), key=len, reverse=True):
        parent, _, last = name.rpartition("/")
        folders[parent].add_folder(last, folders[name])

    return root


def _find_fitting_rows(
    row: _Row, limits: Iterable[int], max_tokens: int, phrases: FoldPhrases
) -> list[_Row] | None:
    """Return the rows below a folder, limited by the first of the limits that fits the room."""
    assert row.folder is not None
    for limit in limits:
        rows = _build_rows(row.folder, row.depth + 1, limit, phrases, row.path)
        if _estimate_folded_tokens(rows) <= max_tokens:
            return rows

    return None


def _build_rows(
    folder: _Folder, depth: int, limit: int, phrases: FoldPhrases, above: str
) -> list[_Row]:
    """Return rows for folders, then files, then the count of the rest."""
    alike = _find_alike_folders(folder)
    names = sorted(folder.folders.keys() - set(alike))
    rows = [
        _make_folder_row(depth, name, folder.folders[name], phrases, above)
        for name in names[:limit]
    ]
    if alike:
        rows.append(_make_alike_row(depth, alike, folder, phrases))

    room = limit - len(rows)
    rows += [_Row(depth, quote_name(name)) for name in sorted(folder.files)[:room] if name]
    rest = [folder.folders[name] for name in names[limit:]]
    files = sum(inner.file_count for inner in rest) + max(0, folder.own_count - room)
    folders = sum(inner.folder_count + 1 for inner in rest)

    if rest or files:
        rows.append(_Row(depth, "", _format_counts(files, folders, phrases)))

    return rows


def _find_alike_folders(folder: _Folder) -> list[str]:
    """Return the names of subfolders with the same counts, if there are many of them."""
    by_counts: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    for name, inner in folder.folders.items():
        if inner.file_count <= _MAX_ALIKE_FILES:
            by_counts[inner.file_count, inner.folder_count].append(name)

    largest = max(by_counts.values(), key=len, default=[])
    return sorted(largest) if len(largest) >= _MIN_ALIKE_FOLDERS else []


def _make_alike_row(depth: int, names: list[str], folder: _Folder, phrases: FoldPhrases) -> _Row:
    inner = [folder.folders[name] for name in names]
    files = sum(one.file_count for one in inner)
    folders = sum(one.folder_count + 1 for one in inner)
    label = phrases.alike.format(first=quote_name(names[0]), last=quote_name(names[-1]))
    return _Row(depth, label, _format_counts(files, folders, phrases))


def _make_folder_row(
    depth: int, name: str, folder: _Folder, phrases: FoldPhrases, above: str
) -> _Row:
    """Return the row of a folder.

    A folder that only contains another folder is joined with it, as in `src/main/`.
    """
    parts = [quote_name(name)]
    path = f"{above}{name}/"
    while not folder.files and len(folder.folders) == 1 and len(parts) < _MAX_JOINED_FOLDERS:
        [(inner, folder)] = folder.folders.items()
        parts.append(quote_name(inner))
        path += f"{inner}/"

    return _Row(
        depth=depth,
        label="/".join(parts) + "/",
        counts=_format_counts(folder.file_count, folder.folder_count, phrases),
        folder=folder,
        path=path,
    )


def _format_counts(files: int, folders: int, phrases: FoldPhrases) -> str:
    if folders:
        phrase = phrases.nested
    else:
        phrase = phrases.files

    return phrase.format(
        files=f"{files:_}".replace("_", " "), folders=f"{folders:_}".replace("_", " ")
    )


def _estimate_folded_tokens(rows: list[_Row]) -> int:
    """Estimate the tokens of the rows while all of their folders are folded."""
    return estimate_tokens("\n".join(_render_line(row, folded=True) for row in rows))


def _render_lines(root: _Row, opened: dict[int, list[_Row]]) -> Iterator[str]:
    stack = [*reversed(opened.get(id(root.folder), []))]
    while stack:
        row = stack.pop()
        if row.folder:
            below = opened.get(id(row.folder))
        else:
            below = None

        yield _render_line(row, folded=below is None)
        stack.extend(reversed(below or []))


def _render_line(row: _Row, folded: bool) -> str:
    text = f"{row.label} {row.counts}".strip(" ") if folded else row.label
    return "  " * row.depth + text
