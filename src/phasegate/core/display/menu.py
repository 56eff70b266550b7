"""The menus of `phasegate` without arguments: which one fits, what it offers, how it is boxed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

from phasegate.core.display.next_steps import next_steps
from phasegate.core.workflow.workflows import is_printable, resolve_display_name

# In a command: the way from the person's folder to the root of the repository
ROOT_PLACEHOLDER = "{root}"
_MAX_WIDTH = 76
_DOCUMENT_SUFFIXES = frozenset({".md", ".rst", ".txt", ".adoc"})
_CODE_WITHOUT_SUFFIX = frozenset({"Dockerfile", "Gemfile", "Justfile", "Makefile", "Rakefile"})


class MenuKind(Enum):
    """What the person finds; the value is the menu's headline."""

    NEW = "not set up yet, no code here"
    EXISTING = "not set up yet, code found"
    IDLE = "no workflow is active"
    ACTIVE = "a workflow is active"
    BLOCKED = "a workflow waits for you"


class MenuEntry(NamedTuple):
    """A choice, the command that it stands for, and the question whose answer is the command's last
    argument.
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
        MenuEntry("Escalate", ("escalate",), "Why does a person have to decide"),
        MenuEntry("Cancel", ("cancel", "--reason"), "Why is the workflow cancelled"),
    ),
}
MENU_ENTRIES[MenuKind.BLOCKED] = (
    MenuEntry("Resolve", ("resolve",), "How was it resolved"),
    *MENU_ENTRIES[MenuKind.ACTIVE],
)


def choose_menu(state: object, configured: bool, has_code: bool) -> MenuKind:
    """The menu that fits; a state that names no sound workflow counts as none."""
    if next_steps(state) is not None:
        if _active_workflow(state).get("stage") == "blocked":
            return MenuKind.BLOCKED
        return MenuKind.ACTIVE

    if configured:
        return MenuKind.IDLE
    if has_code:
        return MenuKind.EXISTING

    return MenuKind.NEW


def render_headline(kind: MenuKind, state: object) -> str:
    """The menu's first line; for an active workflow its type and phase."""
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
    """A title over numbered choices in a box of ASCII."""
    rows = [f" {number}) {label}" for number, label in enumerate(labels, 1)]
    rows.append(" q) Leave")
    width = min(max(len(row) for row in [title, *rows]), _MAX_WIDTH)
    line = f"+{'-' * (width + 2)}+"
    boxed = [f"| {row[:width]:<{width}} |" for row in (title, *rows)]

    return "\n".join([line, boxed[0], line, *boxed[1:], line])


def parse_choice(answer: str, entries: Sequence[MenuEntry]) -> MenuEntry | None:
    """The entry whose number was typed; None for anything else."""
    typed = answer.strip()
    is_number = typed.isascii() and typed.isdigit() and len(typed) <= len(str(len(entries)))
    if is_number and 1 <= int(typed) <= len(entries):
        return entries[int(typed) - 1]
    return None


def is_code_file(name: str) -> bool:
    """Whether a file of this name makes a repository one with code.

    No document, no licence, nothing hidden.
    """
    if name.startswith("."):
        return False

    stem, dot, suffix = name.rpartition(".")
    if dot and stem:
        return f".{suffix.lower()}" not in _DOCUMENT_SUFFIXES

    return name in _CODE_WITHOUT_SUFFIX
