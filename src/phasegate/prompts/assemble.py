"""Assemble a prompt from template, variables, context and instructions, within a token budget.

Stable parts come first, so that prompt caches hit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from phasegate.core.prompt.budget import (
    ContextPiece,
    FittedContext,
    PieceKind,
    Truncation,
    fit_context,
    shorten_text,
)
from phasegate.core.prompt.document import (
    ContextItem,
    ItemType,
    UnifiedPrompt,
    render_head,
    render_tail,
)
from phasegate.core.prompt.excerpt import drop_empty_sections
from phasegate.core.prompt.hidden_characters import (
    HiddenCharacter,
    find_hidden_in_item,
    find_hidden_in_text,
    quote_name,
)
from phasegate.core.prompt.project_tree import render_project_tree
from phasegate.core.prompt.role_needs import RoleNeed
from phasegate.core.text.token_estimate import estimate_tokens
from phasegate.errors import ConfigError, PromptTooLarge, UnreadableFile
from phasegate.files.block_reader import read_up_to, reject_path_outside
from phasegate.prompts.shipped_texts import NotePhrases, load_phrases, render_skeletons
from phasegate.prompts.templates import TEMPLATES_FOLDER, find_template, inject_variables

NOTES_RESERVE_TOKENS = 1_200
MAX_HIDDEN_PER_ITEM = 20
# All files together; a prompt is assembled in memory
MAX_CONTEXT_BYTES = 64 * 2**20
_MAX_SECTION_TOKENS = 350


def build_notes(
    left_out: Sequence[str], cut: Sequence[Truncation], hidden: Sequence[HiddenCharacter]
) -> tuple[ContextItem, ...]:
    """Build one item that lists everything truncated, omitted or hidden; empty if nothing is."""
    phrases = load_phrases().notes
    sections = [
        _render_section(phrases.left_out, [quote_name(name) for name in left_out], phrases),
        _render_section(phrases.cut, [quote_name(truncation.name) for truncation in cut], phrases),
        _render_section(
            phrases.hidden,
            [_render_hidden_line(character, phrases) for character in hidden],
            phrases,
        ),
    ]
    texts = [section for section in sections if section]
    if hidden:
        texts.append(phrases.escaped.format())
    if texts:
        return (ContextItem(ItemType.ARTIFACT, phrases.name, "\n\n".join(texts) + "\n"),)

    return ()


def _render_hidden_line(hidden: HiddenCharacter, phrases: NotePhrases) -> str:
    if hidden.line:
        phrase = phrases.hidden_at
    else:
        phrase = phrases.hidden_in_name
    return phrase.format(item=quote_name(hidden.item), line=hidden.line, character=hidden.character)


def _render_section(title: str, entries: Sequence[str], phrases: NotePhrases) -> str:
    """Render a title and as many entries as fit, then a line with the number of omitted ones."""
    if not entries:
        return ""

    lines = [title]
    room = _MAX_SECTION_TOKENS - estimate_tokens(title)

    for entry in entries:
        line = phrases.entry.format(text=entry)
        room -= estimate_tokens(line + "\n")
        if room < 0:
            lines.append(phrases.more.format(count=len(entries) - len(lines) + 1))
            break

        lines.append(line)

    return "\n".join(lines)


PROJECT_FILE = "agentd/project.md"
MAX_TREE_TOKENS = 6_000
MAX_PROJECT_CONTEXT_TOKENS = 50_000
# Upper bound of the bytes per token; more of a file is not read
MAX_BYTES_PER_TOKEN = 8


class PromptRequest(NamedTuple):
    """The parameters of a prompt.

    `paths` is the project's file list, taken once per phase, so that rounds share their prefix.
    """

    agent: str
    phase: str
    instructions: str
    root: Path
    paths: Sequence[str] = ()
    # Documents that the agent is asked to write
    output_documents: Sequence[str] = ()
    budget_tokens: int | None = None
    # Template prefixes in the configuration of the project
    configured_agents: Collection[str] = ()
    project_file: str = PROJECT_FILE
    templates_folder: str = TEMPLATES_FOLDER
    # Paths whose folders are open in the tree; all folders if there are none
    focus: Sequence[str] = ()
    # Limits of a run; a prompt that a user asks for has only the budget
    need: RoleNeed | None = None


class PromptSource(NamedTuple):
    """A file to use as context."""

    kind: PieceKind
    name: str
    path: Path


class AssembledPrompt(NamedTuple):
    """A prompt, its estimated tokens, and everything truncated, omitted or hidden."""

    prompt: UnifiedPrompt
    tokens: int
    left_out: tuple[str, ...]
    cut: tuple[Truncation, ...]
    hidden: tuple[HiddenCharacter, ...]
    template_sha256: str = ""


class SystemPrompt(NamedTuple):
    """The filled template, and what was truncated or hidden in the project description."""

    text: str
    cut: tuple[Truncation, ...]
    left_out: tuple[str, ...]
    hidden: tuple[HiddenCharacter, ...]
    template_sha256: str = ""


def assemble_prompt(request: PromptRequest, pieces: Sequence[ContextPiece]) -> AssembledPrompt:
    """Assemble the prompt of one run; omissions are noted in the prompt and returned."""
    system = build_system_prompt(request, pieces)
    instructions = request.instructions
    if request.need is not None and request.output_documents:
        # What the role shares with other phases comes first
        instructions = f"{instructions}\n{render_skeletons(request.output_documents)}\n"

    fixed = estimate_tokens(render_head(system.text) + render_tail(instructions))
    fitted = _fit_pieces(request, pieces, fixed)
    hidden = system.hidden + tuple(
        character
        for item in fitted.items
        for character in find_hidden_in_item(item, MAX_HIDDEN_PER_ITEM)
    )
    cut = system.cut + fitted.cut
    left_out = system.left_out + fitted.left_out
    notes = build_notes(left_out, cut, hidden)
    prompt = UnifiedPrompt(system.text, (*fitted.items, *notes), instructions)

    return AssembledPrompt(
        prompt=prompt,
        tokens=estimate_tokens(prompt.to_xml()),
        left_out=left_out,
        cut=cut,
        hidden=hidden,
        template_sha256=system.template_sha256,
    )


def _fit_pieces(
    request: PromptRequest, pieces: Sequence[ContextPiece], fixed: int
) -> FittedContext:
    """Fit the context into the budget; raise PromptTooLarge if nothing is left."""
    if request.budget_tokens is None:
        return fit_context(pieces, None, load_phrases().cut)

    room = request.budget_tokens - fixed - NOTES_RESERVE_TOKENS
    if room < 0:
        raise PromptTooLarge(
            f"system prompt and instructions need about {fixed} tokens, and {NOTES_RESERVE_TOKENS}"
            f" are reserved for notes; the budget is {request.budget_tokens}",
            f"raise the budget to at least {fixed + NOTES_RESERVE_TOKENS}, or shorten the template",
        )

    return fit_context(pieces, room, load_phrases().cut)


def read_pieces(
    root: Path, sources: Sequence[PromptSource], budget_tokens: int | None
) -> list[ContextPiece]:
    """Read the files, the most important first, and not more than could ever fit.

    Raise PromptTooLarge if they are too large for a prompt without a budget.
    """
    left = MAX_CONTEXT_BYTES
    if budget_tokens is not None:
        left = min(left, budget_tokens * MAX_BYTES_PER_TOKEN)

    pieces: dict[int, ContextPiece] = {}
    for index in sorted(
        range(len(sources)), key=lambda index: (sources[index].kind.value.priority, index)
    ):
        source = sources[index]
        reject_path_outside(root, source.path)
        raw, size = read_up_to(source.path, left)
        if budget_tokens is None and size > left:
            raise PromptTooLarge(
                f"the total size of the files exceeds {MAX_CONTEXT_BYTES // 2**20} MB",
                "set a budget, or pass fewer files",
            )

        left -= len(raw)
        text = raw.decode("utf-8", "surrogateescape")
        pieces[index] = ContextPiece(source.kind, source.name, text, max(0, size - len(raw)))

    return [pieces[index] for index in range(len(sources))]


def build_system_prompt(
    request: PromptRequest, pieces: Sequence[ContextPiece] = ()
) -> SystemPrompt:
    """Fill the template of agent and phase.

    Content that changes between rounds is only referred to. A variable whose content is not among
    the pieces has no value and is reported as missing.
    """
    template = find_template(
        request.agent,
        request.phase,
        root=request.root,
        configured_agents=request.configured_agents,
        templates_folder=request.templates_folder,
    )

    context, cut, left_out = _read_project_context(request)
    phrases = load_phrases()
    kinds = {piece.kind for piece in pieces}
    has_artifacts = any(kind.value.item_type is ItemType.ARTIFACT for kind in kinds)
    skeletons = render_skeletons(request.output_documents)
    # The same sentence in every round
    if request.need is not None and request.need.gives("skeletons"):
        skeletons = phrases.skeletons_below

    values = {
        "PROJECT_CONTEXT": context,
        "PROJECT_STRUCTURE": render_project_structure(request),
        "ARTIFACTS": phrases.artifacts if has_artifacts else "",
        "TASKS": phrases.tasks if PieceKind.TASKS in kinds else "",
        "SKELETON": skeletons,
    }

    text = inject_variables(
        template.text, {name: value for name, value in values.items() if value.strip()}
    )

    return SystemPrompt(
        text=text,
        cut=cut,
        left_out=left_out,
        hidden=tuple(find_hidden_in_text(request.project_file, context, MAX_HIDDEN_PER_ITEM)),
        template_sha256=sha256(template.text.encode()).hexdigest(),
    )


def render_project_structure(request: PromptRequest) -> str:
    """Render the tree within a fixed share of the budget, so that it is the same in every round."""
    room = MAX_TREE_TOKENS
    if request.need is not None:
        room = request.need.max_tokens.get("tree", 0)
    elif request.budget_tokens is not None:
        room = min(MAX_TREE_TOKENS, request.budget_tokens // 10)

    return render_project_tree(request.paths, room, load_phrases().folded, request.focus)


def _read_project_context(
    request: PromptRequest,
) -> tuple[str, tuple[Truncation, ...], tuple[str, ...]]:
    """Read the project's description, cut to its share of the budget.

    Return the text (empty if there is none), the cut, and what was left out.
    """
    room = MAX_PROJECT_CONTEXT_TOKENS
    if request.need is not None:
        room = request.need.max_tokens["project"]
    elif request.budget_tokens is not None:
        room = min(room, request.budget_tokens // 5)

    name = request.project_file
    path = request.root / name
    if not name or not path.exists():
        return "", (), ()

    reject_path_outside(request.root, path)
    if path.is_dir():
        raise ConfigError(
            f"{name} is a folder, not a file",
            "describe the project in a file of that name",
        )

    try:
        raw, size = read_up_to(path, room * MAX_BYTES_PER_TOKEN)
    except UnreadableFile:
        return "", (), (name,)

    text = raw.decode("utf-8", "surrogateescape")
    if request.need is not None:
        text = drop_empty_sections(text)
    if size <= len(raw) and estimate_tokens(text) <= room:
        return text, (), ()

    short = shorten_text(name, text, size - len(raw), room, load_phrases().cut)
    if short:
        return short.text, (short.cut,), ()

    return "", (), (name,)
