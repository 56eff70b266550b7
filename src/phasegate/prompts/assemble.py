"""One prompt out of template, variables, context and instructions, within a budget, the stable parts first."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from phasegate.core.prompt.budget import Cut, Fitted, Piece, PieceKind, fit, shorten
from phasegate.core.prompt.document import ContextItem, ItemType, UnifiedPrompt, head, tail
from phasegate.core.prompt.hidden_characters import Hidden, hidden_in_item, hidden_in_text, shown_name
from phasegate.core.prompt.project_tree import project_tree
from phasegate.core.text.token_estimate import estimate_tokens
from phasegate.errors import ConfigError, PromptTooLarge, UnreadableFile
from phasegate.files.block_reader import read_up_to, refuse_to_leave
from phasegate.prompts.shipped_texts import Notes, phrases, skeletons_of
from phasegate.prompts.stream import HIDDEN_SHOWN, FileSource, Parts
from phasegate.prompts.templates import FOLDER, find_template, inject_variables

NOTES_TOKENS = 1_200
_SECTION_TOKENS = 350


def notes_on(left_out: Sequence[str], cut: Sequence[Cut], hidden: Sequence[Hidden]) -> tuple[ContextItem, ...]:
    """One item with everything there is to say; none if there is nothing."""
    words = phrases().notes
    sections = [
        _section(words.left_out, [shown_name(name) for name in left_out], words),
        _section(words.cut, [shown_name(one.name) for one in cut], words),
        _section(words.hidden, [_hidden_line(one, words) for one in hidden], words),
    ]
    said = [section for section in sections if section]
    if hidden:
        said.append(words.escaped.format())
    return (ContextItem(ItemType.ARTIFACT, words.name, "\n\n".join(said) + "\n"),) if said else ()


def _hidden_line(hidden: Hidden, words: Notes) -> str:
    phrase = words.hidden_at if hidden.line else words.hidden_in_name
    return phrase.format(item=shown_name(hidden.item), line=hidden.line, character=hidden.character)


def _section(title: str, entries: Sequence[str], words: Notes) -> str:
    """A title and as many entries as fit; the rest is counted."""
    lines = [title]
    room = _SECTION_TOKENS - estimate_tokens(title)
    for entry in entries:
        line = words.entry.format(text=entry)
        room -= estimate_tokens(line + "\n")
        if room < 0:
            lines.append(words.more.format(count=len(entries) - len(lines) + 1))
            break
        lines.append(line)
    return "\n".join(lines) if entries else ""


PROJECT_FILE = "agentd/project.md"
TREE_TOKENS = 6_000
PROJECT_CONTEXT_TOKENS = 50_000
BYTES_A_TOKEN = 8  # more bytes than this a token are not even read


class PromptRequest(NamedTuple):
    """What a prompt is for. `paths` is the project's listing: taken once a phase, so that rounds share their prefix."""

    agent: str
    phase: str
    instructions: str
    root: Path
    paths: Sequence[str] = ()
    documents: Sequence[str] = ()  # what is to be written
    budget_tokens: int | None = None
    configured: Collection[str] = ()  # prefixes that the project's configuration names
    project_file: str = PROJECT_FILE
    templates: str = FOLDER


class PromptSource(NamedTuple):
    """A file that is offered as context."""

    kind: PieceKind
    name: str
    path: Path


class Assembled(NamedTuple):
    """The prompt, what it costs by our estimate, and everything that is not in it as it was."""

    prompt: UnifiedPrompt
    tokens: int
    left_out: tuple[str, ...]
    cut: tuple[Cut, ...]
    hidden: tuple[Hidden, ...]


class System(NamedTuple):
    """The filled template, and what happened to the project's own description on the way."""

    text: str
    cut: tuple[Cut, ...]
    left_out: tuple[str, ...]
    hidden: tuple[Hidden, ...]


def assemble(request: PromptRequest, pieces: Sequence[Piece]) -> Assembled:
    """The prompt of one run. What had to be left out is said in the prompt and returned."""
    system = system_prompt(request)
    fixed = estimate_tokens(head(system.text) + tail(request.instructions))
    fitted = _fitted(request, pieces, fixed)
    hidden = system.hidden + tuple(found for item in fitted.items for found in hidden_in_item(item, HIDDEN_SHOWN))
    cut, left_out = system.cut + fitted.cut, system.left_out + fitted.left_out
    notes = notes_on(left_out, cut, hidden)
    prompt = UnifiedPrompt(system.text, (*fitted.items, *notes), request.instructions)
    return Assembled(prompt, estimate_tokens(prompt.to_xml()), left_out, cut, hidden)


def _fitted(request: PromptRequest, pieces: Sequence[Piece], fixed: int) -> Fitted:
    if request.budget_tokens is None:
        return fit(pieces, None, phrases().cut)
    room = request.budget_tokens - fixed - NOTES_TOKENS
    if room < 0:
        raise PromptTooLarge(
            f"system prompt and instructions need about {fixed} tokens, and {NOTES_TOKENS} are kept for notes;"
            f" the budget is {request.budget_tokens}",
            f"raise the budget to at least {fixed + NOTES_TOKENS}, or shorten the template",
        )
    return fit(pieces, room, phrases().cut)


def as_parts(request: PromptRequest, sources: Sequence[PromptSource], pieces: Sequence[Piece] = ()) -> Parts:
    """The same prompt without a budget, its files still on the disk, for `write_xml`."""
    system = system_prompt(request)
    for source in sources:
        refuse_to_leave(request.root, source.path)
    offered: list[PromptSource | Piece] = sorted([*sources, *pieces], key=lambda one: one.kind.value.place)
    context = [one.item if isinstance(one, Piece) else _file_source(one) for one in offered]
    return Parts(
        system.text,
        context,
        request.instructions,
        lambda hidden: notes_on(system.left_out, system.cut, (*system.hidden, *hidden)),
    )


def _file_source(source: PromptSource) -> FileSource:
    return FileSource(source.kind.value.item_type, source.name, source.path)


def read_pieces(root: Path, sources: Sequence[PromptSource], budget_tokens: int | None) -> list[Piece]:
    """The files' text, the most important first, and no more of it than could ever fit."""
    left = sys.maxsize if budget_tokens is None else budget_tokens * BYTES_A_TOKEN
    pieces: dict[int, Piece] = {}
    for index in sorted(range(len(sources)), key=lambda index: (sources[index].kind.value.priority, index)):
        source = sources[index]
        refuse_to_leave(root, source.path)
        raw, size = read_up_to(source.path, left)
        left -= len(raw)
        text = raw.decode("utf-8", "surrogateescape")
        pieces[index] = Piece(source.kind, source.name, text, max(0, size - len(raw)))
    return [pieces[index] for index in range(len(sources))]


def system_prompt(request: PromptRequest) -> System:
    """The template of agent and phase with its variables. What changes between rounds is only pointed at."""
    template = find_template(
        request.agent, request.phase, root=request.root, configured=request.configured, below=request.templates
    )
    context, cut, left_out = _project_context(request)
    values = {
        "PROJECT_CONTEXT": context,
        "PROJECT_STRUCTURE": project_structure(request.paths, request.budget_tokens),
        "ARTIFACTS": phrases().artifacts,
        "TASKS": phrases().tasks,
        "SKELETON": skeletons_of(request.documents),
    }
    text = inject_variables(template.text, {name: value for name, value in values.items() if value.strip()})
    return System(text, cut, left_out, tuple(hidden_in_text(request.project_file, context, HIDDEN_SHOWN)))


def project_structure(paths: Iterable[str], budget_tokens: int | None) -> str:
    """The tree within a fixed share of the budget, so that it is the same in every round."""
    room = TREE_TOKENS if budget_tokens is None else min(TREE_TOKENS, budget_tokens // 10)
    return project_tree(paths, room, phrases().folded)


def _project_context(request: PromptRequest) -> tuple[str, tuple[Cut, ...], tuple[str, ...]]:
    """The project's own description, cut to its share: the text (empty if there is none), the cut, what is left out."""
    budget = request.budget_tokens
    room = PROJECT_CONTEXT_TOKENS if budget is None else min(PROJECT_CONTEXT_TOKENS, budget // 5)
    name = request.project_file
    path = request.root / name
    if not path.exists():
        return "", (), ()
    refuse_to_leave(request.root, path)
    if path.is_dir():
        raise ConfigError(f"{name} is a folder, and a file is meant", "describe the project in a file of that name")
    try:
        raw, size = read_up_to(path, room * BYTES_A_TOKEN)
    except UnreadableFile:
        return "", (), (name,)
    text = raw.decode("utf-8", "surrogateescape")
    if size <= len(raw) and estimate_tokens(text) <= room:
        return text, (), ()
    short = shorten(name, text, size - len(raw), room, phrases().cut)
    return (short.text, (short.cut,), ()) if short else ("", (), (name,))
