"""What a system prompt template must say, checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from phasegate.core.answer.vocabulary import ALLOWED, TaskStatus, Verdict
from phasegate.core.prompt.template import VARIABLES, AgentPhase
from phasegate.core.text.finding import Finding

SECTIONS = ("Identity & Role", "Core Principles", "Workflow Context")
_EVERYWHERE = ("PROJECT_CONTEXT", "PROJECT_STRUCTURE", "ARTIFACTS")
MANDATORY_VARIABLES: dict[AgentPhase, tuple[str, ...]] = {
    AgentPhase.PLAN: (*_EVERYWHERE, "SKELETON"),
    AgentPhase.CHALLENGE: _EVERYWHERE,
    AgentPhase.IMPLEMENT: (*_EVERYWHERE, "TASKS"),
    AgentPhase.REVIEW: _EVERYWHERE,
    AgentPhase.ARCHIVE: _EVERYWHERE,
}
_VERDICT_WORD = {verdict: re.compile(rf"\b{verdict}\b") for verdict in Verdict}
_BRACES = re.compile(r"\{\{([^{}\n]*)\}\}")
_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


def lint(phase: AgentPhase, template: str) -> list[Finding]:
    """Everything that is wrong with a template, in the order of its lines."""
    found = [*_sections(template), *_placeholders(phase, template), *_markers(phase, template)]
    if "<thought>" not in template:
        found.append(Finding(1, "no-thought", "say that reasoning goes into <thought>, which is removed"))
    return sorted(found, key=lambda finding: finding.line)  # a lack is reported at line 1


def _sections(template: str) -> Iterator[Finding]:
    if "```" not in template and "~~~" not in template and all(f"\n## {section}\n" in template for section in SECTIONS):
        return  # the usual case, at a tenth of the time
    titles = set(_titles(template.split("\n")))
    for section in SECTIONS:
        if section.casefold() not in titles:
            yield Finding(1, "missing-section", f"there is no heading '{section}'")


def _titles(lines: Sequence[str]) -> Iterator[str]:
    """The titles of the headings, of any level, outside code fences."""
    fence = ""
    for line in lines:
        start = line.lstrip(" ")[:3]
        if start in ("```", "~~~"):
            fence = "" if fence == start else fence or start
        elif not fence and start[:1] == "#":
            yield line.strip(" #\t\r").casefold()


def _placeholders(phase: AgentPhase, template: str) -> Iterator[Finding]:
    seen: set[str] = set()
    for match in _BRACES.finditer(template):
        name = match[1]
        seen.add(name)
        if name not in VARIABLES:
            yield Finding(_line_of(template, match.start()), *_unknown(name))
    for name in MANDATORY_VARIABLES[phase]:
        if name not in seen:
            yield Finding(1, "missing-placeholder", f"there is no {{{{{name}}}}}")


def _unknown(name: str) -> tuple[str, str]:
    if _NAME.fullmatch(name):
        return "unknown-placeholder", f"{{{{{name}}}}} is not a variable; there are {', '.join(VARIABLES)}"
    return "malformed-placeholder", f"{{{{{name}}}}} is never filled; a placeholder is upper case without blanks"


def _markers(phase: AgentPhase, template: str) -> Iterator[Finding]:
    for verdict in Verdict:
        if verdict in ALLOWED[phase]:
            if f"<review>{verdict}</review>" not in template:
                yield Finding(1, "missing-marker", f"<review>{verdict}</review> is not asked for")
        elif verdict in template and (match := _VERDICT_WORD[verdict].search(template)):
            line = _line_of(template, match.start())
            yield Finding(line, "foreign-verdict", f"{verdict} is not an answer of the phase {phase}")
    if phase is AgentPhase.IMPLEMENT:
        yield from _task_markers(template)


def _task_markers(template: str) -> Iterator[Finding]:
    if (at := template.find("<review")) >= 0:
        yield Finding(_line_of(template, at), "foreign-verdict", "an implementer gives no verdict: no <review>")
    for status in TaskStatus:
        if '<task_status id="' not in template or f">{status}</task_status>" not in template:
            yield Finding(1, "missing-marker", f'<task_status id="X.Y">{status}</task_status> is not asked for')


def _line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1
