"""Phasegate: a spec-driven orchestrator for coding agents.

Names are imported on first use, so that `import phasegate` is cheap: a hook runs after every agent
turn.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from phasegate.core.answer.parse import parse_answer as parse_answer
    from phasegate.core.display.next_steps import check_block as check_block
    from phasegate.core.display.next_steps import next_steps as next_steps
    from phasegate.core.prompt.document import ContextItem as ContextItem
    from phasegate.core.prompt.document import UnifiedPrompt as UnifiedPrompt
    from phasegate.core.workflow.workflow_phases import resolve_display_name as resolve_display_name
    from phasegate.errors import MissingReviewMarker as MissingReviewMarker
    from phasegate.errors import PhasegateError as PhasegateError
    from phasegate.errors import TemplateNotFound as TemplateNotFound
    from phasegate.prompts.templates import inject_variables as inject_variables
    from phasegate.prompts.templates import load_system_template as load_system_template

__version__ = "0.2.0.dev0"

_MODULE_OF = {
    "ContextItem": "phasegate.core.prompt.document",
    "UnifiedPrompt": "phasegate.core.prompt.document",
    "inject_variables": "phasegate.prompts.templates",
    "load_system_template": "phasegate.prompts.templates",
    "MissingReviewMarker": "phasegate.errors",
    "PhasegateError": "phasegate.errors",
    "TemplateNotFound": "phasegate.errors",
    "check_block": "phasegate.core.display.next_steps",
    "next_steps": "phasegate.core.display.next_steps",
    "parse_answer": "phasegate.core.answer.parse",
    "resolve_display_name": "phasegate.core.workflow.workflow_phases",
}
__all__ = sorted(_MODULE_OF)  # noqa: PLE0605 - the table above is the one list of public names


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'phasegate' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULE_OF]
