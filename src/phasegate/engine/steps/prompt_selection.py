"""Select and limit the context of a job by what its role needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from phasegate.core.prompt.agent_part import select_agent_part
from phasegate.core.prompt.budget import ContextPiece, PieceKind
from phasegate.core.prompt.excerpt import outline_file, shorten_diff
from phasegate.core.prompt.hidden_characters import quote_name
from phasegate.core.prompt.role_needs import RoleNeed, classify_item
from phasegate.core.text.wording import join_names
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.prompts.agent_files import find_phase_file
from phasegate.prompts.shipped_texts import load_phrases, load_role_needs
from phasegate.workspace.checkout.removal import place_file
from phasegate.workspace.repository.commit_log import diff_commits
from phasegate.workspace.repository.repository import read_blobs
from phasegate.workspace.repository.tree_diff import diff_trees

DIFF_NAME = "change.diff"
NAMES_NAME = "change-names.txt"
FULL_DIFF_FILE = "phasegate-change.diff"
REQUEST_NAME = "request.md"
_MAX_NAMES = 40
# Of a file in scope that is longer, only the outline is given
_MAX_WHOLE_FILE_SHARE = 2
_MIN_ROOM_CHARACTERS = 200


def find_need(role: str, phase: str) -> RoleNeed:
    """Return the parts of a prompt that a role gets in a phase."""
    return load_role_needs().find(role, phase)


def select_pieces(need: RoleNeed, pieces: Iterable[ContextPiece]) -> tuple[ContextPiece, ...]:
    """Return the pieces that the role needs, each part within its limit."""
    room = {part: need.max_characters(part) for part in need.max_tokens}
    kept = []

    for piece in pieces:
        part = get_part(piece)
        if not need.gives(part) or not _is_wanted_document(need, part, piece):
            continue

        limited = limit_piece(piece, room[part])
        if limited is not None:
            room[part] -= len(limited.content)
            kept.append(limited)

    return tuple(kept)


def get_part(piece: ContextPiece) -> str:
    """Return the part of the prompt that a piece belongs to."""
    if piece.kind is PieceKind.ROLE:
        return "agent_file"
    return classify_item(piece.kind.value.item_type, piece.name or "")


def _is_wanted_document(need: RoleNeed, part: str, piece: ContextPiece) -> bool:
    if part != "documents" or piece.kind is not PieceKind.ARTIFACT:
        return True
    name = piece.name or ""
    return name == REQUEST_NAME or need.gives_document(name)


def limit_piece(piece: ContextPiece, max_characters: int) -> ContextPiece | None:
    """Cut a piece at the end of a line, or return None if nothing useful would be left.

    The marker for the cut is not counted.
    """
    text = piece.content
    if len(text) <= max_characters:
        return piece
    if max_characters < _MIN_ROOM_CHARACTERS:
        return None

    head = text[: text.rfind("\n", 0, max_characters) + 1 or max_characters]
    marker = load_phrases().cut.format(
        line=head.count("\n"),
        shown=len(head.encode("utf-8", "replace")),
        total=len(text.encode("utf-8", "replace")),
        name=quote_name(piece.name or ""),
    )
    return piece._replace(content=head + marker)


def agent_file_pieces(need: RoleNeed, phase: str) -> Iterator[ContextPiece]:
    """Yield the part of the phase's agent file that the role needs."""
    file = find_phase_file(phase) if need.agent_file else None
    if file is None:
        return

    text = select_agent_part(file.text, need.agent_file, phase, load_role_needs().agent_file)
    if text:
        yield ContextPiece(PieceKind.ROLE, file.name, text)


def change_pieces(
    branch: FeatureBranch, need: RoleNeed, old: str, new: str, folder: Path
) -> Iterator[ContextPiece]:
    """Yield the change between two commits: the diff, or the names of the changed files.

    The feature's own documents are named only. A diff that is too long is cut by whole files; then
    all of it is written into the folder.
    """
    phrases = load_phrases()
    room = need.max_characters("diff")
    paths, documents = list_changed_files(branch, old, new)
    if need.max_tokens.get("diff", 0) < MIN_DIFF_TOKENS:
        names = [quote_name(path) for path in paths]
        yield ContextPiece(PieceKind.REVISED, NAMES_NAME, "".join(f"{name}\n" for name in names))
        return

    diff = diff_commits(branch.project.repository, old, new, paths)
    shown = diff
    left_out: tuple[str, ...] = ()
    if len(diff) > room:
        shown, left_out = shorten_diff(diff, room - _MIN_ROOM_CHARACTERS * 10)
        place_file(folder, FULL_DIFF_FILE, diff)
    if left_out:
        named = join_names([quote_name(name) for name in left_out], _MAX_NAMES)
        shown += phrases.diff_left_out.format(names=named, file=FULL_DIFF_FILE)

    if documents:
        names = [quote_name(path.removeprefix(f"{branch.folder}/")) for path in documents]
        named = join_names(names, _MAX_NAMES)
        shown += phrases.diff_documents.format(names=named)

    yield ContextPiece(PieceKind.REVISED, DIFF_NAME, shown)


# With less room than this, only the names of the changed files are given
MIN_DIFF_TOKENS = 1_000


def list_changed_files(branch: FeatureBranch, old: str, new: str) -> tuple[list[str], list[str]]:
    """Return the changed paths outside the feature's folder, and those in it."""
    paths = [one.path for one in diff_trees(branch.project.repository.place(), old, new)]
    prefix = f"{branch.folder}/"
    documents = [path for path in paths if path.startswith(prefix)]
    return [path for path in paths if not path.startswith(prefix)], documents


def file_pieces(
    branch: FeatureBranch, need: RoleNeed, blobs: dict[str, str], paths: Iterable[str]
) -> Iterator[ContextPiece]:
    """Yield files of a commit: whole if they are short, otherwise their outline.

    `blobs` are the files of the commit. Binary files and paths that do not exist are left out.
    """
    wanted = {path: blobs[path] for path in paths if path in blobs}
    contents = read_blobs(branch.project.repository.place(), wanted.values())
    room = need.max_characters("files")

    for path in sorted(wanted, key=lambda path: len(contents[wanted[path]])):
        data = contents[wanted[path]]
        if b"\0" in data:
            continue

        text = data.decode("utf-8", "surrogateescape")
        if len(text) > room // _MAX_WHOLE_FILE_SHARE:
            outline = outline_file(text, room // _MAX_WHOLE_FILE_SHARE, path)
            lines = text.count("\n")
            text = load_phrases().outline.format(lines=lines) + outline if outline else ""

        if text and len(text) <= room:
            room -= len(text)
            yield ContextPiece(PieceKind.FILE, path, text)
