"""Menus of `phasegate` without arguments: which one applies, its entries, its box."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

from phasegate.core.display.next_steps import next_steps
from phasegate.core.workflow.workflow_phases import is_printable, resolve_display_name

# Placeholder in a command for the path from the current directory to the repository root
ROOT_PLACEHOLDER = "{root}"
_MAX_WIDTH = 76
_DOCUMENT_SUFFIXES = frozenset({".md", ".rst", ".txt", ".adoc"})
_CODE_WITHOUT_SUFFIX = frozenset({"Dockerfile", "Gemfile", "Justfile", "Makefile", "Rakefile"})


class MenuKind(Enum):
    """State of the repository; the value is the menu's headline."""

    NEW = "not set up yet, no code here"
    EXISTING = "not set up yet, code found"
    IDLE = "no workflow is active"
    ACTIVE = "a workflow is active"
    BLOCKED = "a workflow waits for you"


class MenuEntry(NamedTuple):
    """A choice with its command.

    The answer to `question`, if there is one, becomes the last argument of the command.
    """

    label: str
    command: tuple[str, ...]
    question: str = ""


_HELP = MenuEntry("Help", ("--help",))
_STATUS = MenuEntry("View Status", ("status",))
_SET_UP = MenuEntry("Set Up This Repository", ("init",))

MENU_ENTRIES: dict[MenuKind, tuple[MenuEntry, ...]] = {
    MenuKind.NEW: (
        _SET_UP,
        MenuEntry("See the Demo", ("demo",)),
        MenuEntry("Show Agent Programs", ("agents",)),
        _HELP,
    ),
    MenuKind.EXISTING: (
        _SET_UP,
        MenuEntry(
            "Discover Existing Code (installs the agent files)",
            ("agent-file", "install", f"{ROOT_PLACEHOLDER}/.claude/agents"),
        ),
        MenuEntry("See the Demo", ("demo",)),
        MenuEntry("Show Agent Programs", ("agents",)),
        _HELP,
    ),
    MenuKind.IDLE: (
        MenuEntry("New Feature", ("start", "feature"), "Describe your feature"),
        MenuEntry("Fix", ("start", "fix"), "Describe your bug"),
        MenuEntry("Run Tests", ("run", "test-run")),
        MenuEntry("Generate Tests", ("run", "test-generate")),
        MenuEntry("Full Lifecycle", ("start", "full-lifecycle"), "Describe your project"),
        _STATUS,
        MenuEntry("Upgrade", ("start", "upgrade"), "Describe your upgrade target"),
    ),
    MenuKind.ACTIVE: (
        MenuEntry("Continue", ("run",)),
        MenuEntry("Gate Check", ("gate",)),
        _STATUS,
        MenuEntry("Escalate", ("escalate",), "Why must the user decide"),
        MenuEntry("Cancel", ("cancel", "--reason"), "Why is the workflow cancelled"),
    ),
}
MENU_ENTRIES[MenuKind.BLOCKED] = (
    MenuEntry("Resolve", ("resolve",), "How was it resolved"),
    *MENU_ENTRIES[MenuKind.ACTIVE],
)


def choose_menu(
    state: object, configured: bool, has_code: bool, own_state: object = None
) -> MenuKind:
    """Return the menu for a state; an invalid workflow in the state counts as none."""
    if (block := next_steps(state, own_state=own_state)) is not None:
        if block == next_steps(state, "blocker"):
            return MenuKind.BLOCKED
        return MenuKind.ACTIVE

    if configured:
        return MenuKind.IDLE
    if has_code:
        return MenuKind.EXISTING

    return MenuKind.NEW


def render_headline(kind: MenuKind, state: object) -> str:
    """Return the first line of the menu; for an active workflow with its type and phase."""
    active = _active_workflow(state)
    if kind not in (MenuKind.ACTIVE, MenuKind.BLOCKED) or not active:
        return f"PHASEGATE - {kind.value}"

    type_ = active.get("type")
    phase = resolve_display_name(active["phases"][active["current_phase_index"]])
    if kind is MenuKind.BLOCKED:
        waits = ", waits for you"
    else:
        waits = ""

    return f"PHASEGATE - {type_ if is_printable(type_) else 'workflow'}: {phase}{waits}"


def _active_workflow(state: object) -> dict[str, Any]:
    if isinstance(state, dict):
        active = state.get("active_workflow")
    else:
        active = None

    if isinstance(active, dict):
        return active
    return {}


def render_box(title: str, labels: Sequence[str]) -> str:
    """Render a title and numbered choices in an ASCII box."""
    rows = [f" {number}) {label}" for number, label in enumerate(labels, 1)]
    rows.append(" q) Leave")
    width = min(max(len(row) for row in [title, *rows]), _MAX_WIDTH)
    line = f"+{'-' * (width + 2)}+"
    boxed = [f"| {row[:width]:<{width}} |" for row in (title, *rows)]

    return "\n".join([line, boxed[0], line, *boxed[1:], line])


def parse_choice(answer: str, entries: Sequence[MenuEntry]) -> MenuEntry | None:
    """Return the entry whose number was typed, or None for any other input."""
    typed = answer.strip()
    is_number = typed.isascii() and typed.isdigit() and len(typed) <= len(str(len(entries)))
    if is_number and 1 <= int(typed) <= len(entries):
        return entries[int(typed) - 1]
    return None


def is_code_file(name: str) -> bool:
    """Return True unless the file name is that of a document, a licence or a hidden file."""
    if name.startswith("."):
        return False

    stem, dot, suffix = name.rpartition(".")
    if dot and stem:
        return f".{suffix.lower()}" not in _DOCUMENT_SUFFIXES

    return name in _CODE_WITHOUT_SUFFIX
