"""Check that a system prompt template contains everything it must."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from phasegate.core.answer.vocabulary import ALLOWED_VERDICTS, TaskStatus, Verdict
from phasegate.core.prompt.template import TEMPLATE_VARIABLES, AgentPhase
from phasegate.core.text.finding import Finding

REQUIRED_SECTIONS = ("Identity & Role", "Core Principles", "Workflow Context")
_COMMON_VARIABLES = ("PROJECT_CONTEXT", "PROJECT_STRUCTURE", "ARTIFACTS")
MANDATORY_VARIABLES: dict[AgentPhase, tuple[str, ...]] = {
    AgentPhase.PLAN: (*_COMMON_VARIABLES, "SKELETON"),
    AgentPhase.CHALLENGE: _COMMON_VARIABLES,
    AgentPhase.IMPLEMENT: (*_COMMON_VARIABLES, "TASKS"),
    AgentPhase.REVIEW: _COMMON_VARIABLES,
    AgentPhase.ARCHIVE: _COMMON_VARIABLES,
}
_VERDICT_WORD = {verdict: re.compile(rf"\b{verdict}\b") for verdict in Verdict}
_BRACES = re.compile(r"\{\{([^{}\n]*)\}\}")
_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


def lint_template(phase: AgentPhase, template: str) -> list[Finding]:
    """Return all findings for a template, in the order of its lines."""
    findings = [
        *_check_sections(template),
        *_check_placeholders(phase, template),
        *_check_markers(phase, template),
    ]
    if "<thought>" not in template:
        findings.append(
            Finding(1, "no-thought", "ask for reasoning inside <thought>, which is removed")
        )

    # A missing element is reported at line 1
    return sorted(findings, key=lambda finding: finding.line)


def _check_sections(template: str) -> Iterator[Finding]:
    """Yield a finding for each required section that is missing."""
    if (
        "```" not in template
        and "~~~" not in template
        and all(f"\n## {section}\n" in template for section in REQUIRED_SECTIONS)
    ):
        # Fast path, ten times as fast
        return

    titles = set(_iter_titles(template.split("\n")))
    for section in REQUIRED_SECTIONS:
        if section.casefold() not in titles:
            yield Finding(1, "missing-section", f"there is no heading '{section}'")


def _iter_titles(lines: Sequence[str]) -> Iterator[str]:
    """Yield the titles of the headings, of any level, outside code fences."""
    fence = ""

    for line in lines:
        start = line.lstrip(" ")[:3]
        if start in ("```", "~~~"):
            fence = "" if fence == start else fence or start
        elif not fence and start[:1] == "#":
            yield line.strip(" #\t\r").casefold()


def _check_placeholders(phase: AgentPhase, template: str) -> Iterator[Finding]:
    """Yield unknown placeholders, and required ones that are missing."""
    names: set[str] = set()
    for match in _BRACES.finditer(template):
        name = match[1]
        names.add(name)
        if name not in TEMPLATE_VARIABLES:
            yield Finding(
                _line_number_at(template, match.start()), *_describe_unknown_placeholder(name)
            )

    for name in MANDATORY_VARIABLES[phase]:
        if name not in names:
            yield Finding(1, "missing-placeholder", f"there is no {{{{{name}}}}}")


def _describe_unknown_placeholder(name: str) -> tuple[str, str]:
    if _NAME.fullmatch(name):
        return (
            "unknown-placeholder",
            f"{{{{{name}}}}} is not a variable; available: {', '.join(TEMPLATE_VARIABLES)}",
        )

    return (
        "malformed-placeholder",
        f"{{{{{name}}}}} is never filled; a placeholder must be upper case, without spaces",
    )


def _check_markers(phase: AgentPhase, template: str) -> Iterator[Finding]:
    """Yield verdicts that the template must mention or must not mention."""
    for verdict in Verdict:
        if verdict in ALLOWED_VERDICTS[phase]:
            if f"<review>{verdict}</review>" not in template:
                yield Finding(1, "missing-marker", f"<review>{verdict}</review> is not asked for")
        elif verdict in template and (match := _VERDICT_WORD[verdict].search(template)):
            line = _line_number_at(template, match.start())
            yield Finding(
                line, "foreign-verdict", f"{verdict} is not a verdict of the phase {phase}"
            )

    if phase is AgentPhase.IMPLEMENT:
        yield from _check_task_markers(template)


def _check_task_markers(template: str) -> Iterator[Finding]:
    """Yield findings about the task status markers of an implementer."""
    if (at := template.find("<review")) >= 0:
        yield Finding(
            _line_number_at(template, at),
            "foreign-verdict",
            "an implementer must not give a verdict: no <review>",
        )

    for status in TaskStatus:
        if '<task_status id="' not in template or f">{status}</task_status>" not in template:
            yield Finding(
                1,
                "missing-marker",
                f'<task_status id="X.Y">{status}</task_status> is not asked for',
            )


def _line_number_at(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1
