"""Phasegate: a spec-driven orchestrator for coding agents.

Names are loaded when they are first used, so that importing the package costs nothing (a hook runs after every turn).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from phasegate.errors import MissingReviewMarker as MissingReviewMarker
    from phasegate.errors import PhasegateError as PhasegateError
    from phasegate.errors import TemplateNotFound as TemplateNotFound
    from phasegate.prompts.templates import inject_variables as inject_variables
    from phasegate.prompts.templates import load_system_template as load_system_template
    from phasegate.rules.answer import parse_answer as parse_answer
    from phasegate.rules.next_steps import check_block as check_block
    from phasegate.rules.next_steps import next_steps as next_steps
    from phasegate.rules.prompt import ContextItem as ContextItem
    from phasegate.rules.prompt import UnifiedPrompt as UnifiedPrompt
    from phasegate.rules.workflow import resolve_display_name as resolve_display_name

__version__ = "0.1.0"

_HOME_OF = {
    "ContextItem": "phasegate.rules.prompt",
    "UnifiedPrompt": "phasegate.rules.prompt",
    "inject_variables": "phasegate.prompts.templates",
    "load_system_template": "phasegate.prompts.templates",
    "MissingReviewMarker": "phasegate.errors",
    "PhasegateError": "phasegate.errors",
    "TemplateNotFound": "phasegate.errors",
    "check_block": "phasegate.rules.next_steps",
    "next_steps": "phasegate.rules.next_steps",
    "parse_answer": "phasegate.rules.answer",
    "resolve_display_name": "phasegate.rules.workflow",
}
__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - the table above is the one list of public names


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'phasegate' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME_OF]
