"""Read and write the current specification of a capability: `specs/CAPABILITY.md`.

    ### FR-AUTH-001: Log in
    Priority: high

    People log in with an email address and a password.

    - Test: `tests/test_login.py::test_log_in` (accepted 3f2a9c1d20ab)

    #### Scenario: Wrong password

    - **WHEN** the password is wrong
    - **THEN** the form says so

Everything outside of requirements is kept as it is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import sha256

import msgspec

from phasegate.core.text.markdown_lines import collapse_whitespace, iter_markdown_lines

REQUIREMENT_ID = r"[A-Z]{1,12}(?:-[A-Z0-9]{1,24}){0,6}-[0-9]{1,6}"
REVISION_CHARS = 12
# A longer line is text
MAX_LINE_CHARS = 2_000
# Level of the headings of requirements
_LEVEL = 3
_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*")
_REQUIREMENT = re.compile(rf"({REQUIREMENT_ID})(?::\s*(.*))?")
_SCENARIO = re.compile(r"Scenario:\s*(.*)")
_PRIORITY = re.compile(r"Priority:\s*(\S+)\s*")
_BINDING = re.compile(r"- (Test|Code): `([^`]+)`(?: \(accepted ([0-9a-f]{12})\))?\s*")


class MalformedSpec(ValueError):
    """A specification that cannot be read without guessing."""


class Binding(msgspec.Struct, frozen=True):
    """A test or a piece of code that belongs to a requirement: `path` or `path::name`."""

    kind: str
    target: str
    # Hash of its content when it was accepted; empty if it never was
    accepted: str = ""


class Scenario(msgspec.Struct, frozen=True):
    """An example of a requirement, with the tests that show it."""

    name: str
    text: str = ""
    bindings: tuple[Binding, ...] = ()


class CurrentRequirement(msgspec.Struct, frozen=True):
    """A requirement as it applies now."""

    id: str
    title: str = ""
    text: str = ""
    priority: str = ""
    scenarios: tuple[Scenario, ...] = ()
    bindings: tuple[Binding, ...] = ()

    @property
    def all_bindings(self) -> tuple[Binding, ...]:
        """The bindings of the requirement and of its scenarios, each once."""
        own = [*self.bindings]
        for scenario in self.scenarios:
            own += scenario.bindings
        return tuple(dict.fromkeys(own))

    @property
    def summary(self) -> str:
        """The requirement in one line."""
        return collapse_whitespace(self.title or self.text)


class CapabilitySpec(msgspec.Struct, frozen=True):
    """A capability: its requirements in order, and the texts between them."""

    blocks: tuple[CurrentRequirement | str, ...] = ()

    @property
    def requirements(self) -> dict[str, CurrentRequirement]:
        return {one.id: one for one in self.blocks if isinstance(one, CurrentRequirement)}


def compute_revision(requirement: CurrentRequirement) -> str:
    """Return the hash of a requirement's text; its id, priority and bindings do not count."""
    parts = [requirement.title, requirement.text]
    for scenario in requirement.scenarios:
        parts += [scenario.name, scenario.text]
    content = "\0".join(map(collapse_whitespace, parts))
    return sha256(content.encode()).hexdigest()[:REVISION_CHARS]


def parse_spec(text: str) -> CapabilitySpec:
    """Read the specification of a capability; raise MalformedSpec."""
    lines = split_lines(text)
    prose = find_prose_lines(text)
    starts = [*_find_blocks(lines, prose)]
    ends = [*starts[1:], len(lines)]
    blocks: list[CurrentRequirement | str] = []

    for start, end in zip(starts, ends, strict=True):
        heading = _match_requirement(lines[start]) if start in prose else None
        if heading is not None:
            blocks.append(_read_requirement(heading, lines[start + 1 : end]))
        elif block := "\n".join(lines[start:end]).strip("\n"):
            blocks.append(block)

    ids = Counter(one.id for one in blocks if isinstance(one, CurrentRequirement))
    if twice := [id_ for id_, times in ids.items() if times > 1]:
        raise MalformedSpec(f"{', '.join(twice)} appears twice")
    return CapabilitySpec(tuple(blocks))


def render_spec(spec: CapabilitySpec) -> str:
    """Write the specification of a capability."""
    parts = []
    for block in spec.blocks:
        parts.append(block if isinstance(block, str) else render_requirement(block))
    return "\n\n".join(parts) + "\n"


def render_requirement(requirement: CurrentRequirement) -> str:
    """Write one requirement, with its scenarios and bindings."""
    heading = f"### {requirement.id}"
    if requirement.title:
        heading = f"{heading}: {requirement.title}"
    if requirement.priority:
        heading = f"{heading}\nPriority: {requirement.priority}"

    parts = [heading, requirement.text, _render_bindings(requirement.bindings)]
    for scenario in requirement.scenarios:
        bindings = _render_bindings(scenario.bindings)
        parts += [f"#### Scenario: {scenario.name}".rstrip(), scenario.text, bindings]
    return "\n\n".join(part for part in parts if part)


def find_prose_lines(text: str) -> frozenset[int]:
    """Return the indexes of the lines that may be headings, annotations or bindings.

    These are outside of code blocks and comments, and not overlong. Raise MalformedSpec if a code
    block or comment is not closed: the rest of the text would be part of it.
    """
    marker = "end of the specification"
    lines = [line for line in iter_markdown_lines(f"{text}\n{marker}") if line.fence_info is None]
    if not lines or lines[-1].text != marker:
        raise MalformedSpec("a code block or a comment is not closed")
    short = (line for line in lines[:-1] if len(line.text) <= MAX_LINE_CHARS)
    return frozenset(line.number - 1 for line in short)


def split_lines(text: str) -> list[str]:
    """Return a document's lines, for any kind of line ending."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def read_sections(lines: Iterable[str]) -> tuple[str, tuple[Binding, ...], tuple[Scenario, ...]]:
    """Read the text, the bindings and the scenarios of a requirement."""
    raw = [*lines]
    prose = find_prose_lines("\n".join(raw))
    # The text before the first scenario comes first
    names = [""]
    bodies: list[list[str]] = [[]]
    bindings: list[list[Binding]] = [[]]

    for index, line in enumerate(raw):
        heading = _HEADING.fullmatch(line) if index in prose else None
        scenario = _SCENARIO.fullmatch(heading[2]) if heading else None
        bound = _BINDING.fullmatch(line) if index in prose else None
        if scenario:
            names.append(scenario[1])
            bodies.append([])
            bindings.append([])
        elif bound:
            bindings[-1].append(Binding(bound[1].lower(), bound[2], bound[3] or ""))
        else:
            bodies[-1].append(line)

    texts = [_join_body(body) for body in bodies]
    parts = zip(names[1:], texts[1:], bindings[1:], strict=True)
    scenarios = tuple(Scenario(name, body, tuple(bound)) for name, body, bound in parts)
    return texts[0], tuple(bindings[0]), scenarios


def _join_body(lines: list[str]) -> str:
    """Join lines without the blank lines around them."""
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def _match_requirement(line: str) -> re.Match[str] | None:
    heading = _HEADING.fullmatch(line)
    if heading is None or len(heading[1]) != _LEVEL:
        return None
    return _REQUIREMENT.fullmatch(heading[2])


def _find_blocks(lines: list[str], prose: frozenset[int]) -> Iterator[int]:
    """Yield the first line of each block: a requirement, or the text before or after it.

    A requirement ends at the next heading that is not below it.
    """
    yield 0
    is_inside = 0 in prose and _match_requirement(lines[0]) is not None
    for index in sorted(prose - {0}):
        heading = _HEADING.fullmatch(lines[index])
        if heading is None:
            continue
        is_requirement = _match_requirement(lines[index]) is not None
        if is_requirement or (is_inside and len(heading[1]) <= _LEVEL):
            is_inside = is_requirement
            yield index


def _read_requirement(heading: re.Match[str], lines: list[str]) -> CurrentRequirement:
    """Read one requirement of a current specification."""
    priority = _PRIORITY.fullmatch(lines[0]) if lines else None
    body = lines[1:] if priority else lines
    text, bindings, scenarios = read_sections(body)
    return CurrentRequirement(
        id=heading[1],
        title=heading[2] or "",
        text=text,
        priority=priority[1] if priority else "",
        scenarios=scenarios,
        bindings=bindings,
    )


def _render_bindings(bindings: Iterable[Binding]) -> str:
    lines = []
    for one in bindings:
        accepted = f" (accepted {one.accepted})" if one.accepted else ""
        lines.append(f"- {one.kind.capitalize()}: `{one.target}`{accepted}")
    return "\n".join(lines)
