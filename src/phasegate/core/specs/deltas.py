"""Read the changes of requirements that a feature states, and apply them to the current specs.

A requirement of a feature's `spec.md` is such a change if its annotation says so:

    <!-- sk:fr id="FR-AUTH-001" change="modified" from="3f2a9c1d20ab" -->
    People log in with an email address.

    #### Scenario: Wrong password
    ...
    <!-- /sk:fr -->

`from` is the revision of the requirement that the author has read. A requirement that has another
revision by now was changed since: nothing is applied, and both texts are reported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from phasegate.core.plan.requirements import read_spec
from phasegate.core.specs.spec_file import (
    MAX_LINE_CHARS,
    REQUIREMENT_ID,
    Binding,
    CapabilitySpec,
    CurrentRequirement,
    MalformedSpec,
    Scenario,
    compute_revision,
    find_prose_lines,
    parse_spec,
    read_sections,
    render_requirement,
    split_lines,
)
from phasegate.core.text.markdown_lines import collapse_whitespace

_OPEN = re.compile(r"\s{0,3}<!--\s*sk:fr\s+([^>]*?)\s*-->\s*")
_CLOSE = re.compile(r"\s{0,3}<!--\s*/sk:fr\s*-->\s*")
_ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')
_TITLE = re.compile(rf"#{{1,6}}\s+(?:{REQUIREMENT_ID}:?\s*)?(.*?)\s*")
_OWN_ID = re.compile(rf"(?:[-*+]\s+)?[*_`]{{0,3}}{REQUIREMENT_ID}[*_`:]*\s+")
_LISTED_SCENARIO = re.compile(
    r"#{2,6}\s+(?:[A-Za-z]+ )?Scenario:\s*([^()]*?)\s*\(([A-Z0-9, -]+)\)\s*"
)
_BORDER = re.compile(r"#{1,6}\s|\s{0,3}<!--\s*/?sk:fr")
_DROPPED = re.compile(r"\s*[-*+]\s+(?:Removes|Removed|Drops) scenario:\s*(.*?)\s*", re.I)
_CAPABILITY = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class Change(StrEnum):
    ADDED = "added"
    MODIFIED = "modified"
    REMOVED = "removed"
    RENAMED = "renamed"


class Delta(NamedTuple):
    """One change of a requirement."""

    change: Change
    # The new text; of a removed requirement: the reason
    requirement: CurrentRequirement
    # Revision that the change starts from; empty if the author does not say
    start: str = ""
    capability: str = ""
    # Old id of a renamed requirement
    was: str = ""
    # Names of scenarios that the author removes on purpose
    dropped: tuple[str, ...] = ()
    line: int = 0

    @property
    def target(self) -> str:
        """The id that the requirement has before the change."""
        return self.was or self.requirement.id

    @property
    def ids(self) -> tuple[str, str]:
        """The ids before and after the change."""
        return self.target, self.requirement.id


class SpecProblem(NamedTuple):
    """A change that cannot be applied, with the present and the proposed text."""

    code: str
    requirement: str
    message: str
    current: str = ""
    proposed: str = ""

    def describe(self) -> str:
        """Return the message with both texts."""
        lines = [f"{self.requirement}: {self.message}"]
        if self.current:
            lines.append(f"now:\n{self.current}")
        if self.proposed:
            lines.append(f"proposed:\n{self.proposed}")
        return "\n".join(lines)


class AppliedDeltas(NamedTuple):
    """The specs after all changes; with problems, nothing may be written."""

    specs: dict[str, CapabilitySpec]
    problems: tuple[SpecProblem, ...]


def read_deltas(text: str) -> tuple[Delta, ...]:
    """Return the changes that a feature's specification states; raise MalformedSpec."""
    if 'change="' not in text:
        return ()

    lines = split_lines(text)
    prose = find_prose_lines(text)
    scenarios = _find_listed_scenarios(lines, prose)
    deltas = []
    for start, end in _find_annotated_blocks(lines, prose):
        opened = _OPEN.fullmatch(lines[start])
        attributes = dict(_ATTRIBUTE.findall(opened[1])) if opened else {}
        if "change" in attributes:
            deltas.append(_read_delta(attributes, lines[start + 1 : end], scenarios, start + 1))
    return tuple(deltas)


def find_restatements(text: str, specs: Mapping[str, CapabilitySpec]) -> Iterator[SpecProblem]:
    """Yield the current requirements that a feature's text words differently without a change.

    Nothing would apply such a text. Raise MalformedSpec if the text cannot be read.
    """
    stated = read_spec(text)
    known = {
        one.id: found for one in stated.requirements if (found := find_requirement(specs, one.id))
    }
    if not known:
        return

    lines = split_lines(text)
    prose = find_prose_lines(text)
    scenarios = _find_listed_scenarios(lines, prose)
    deltas = [
        Delta(Change.MODIFIED, CurrentRequirement(one.id, text=one.text))
        for one in stated.requirements
        if not one.annotated
    ]
    for start, end in _find_annotated_blocks(lines, prose):
        attributes = dict(_ATTRIBUTE.findall(lines[start]))
        if "change" not in attributes and (id_ := attributes.get("id", "")) in known:
            fields = {"id": id_, "change": Change.MODIFIED}
            deltas.append(_read_delta(fields, lines[start + 1 : end], scenarios, start + 1))

    for delta in deltas:
        new = delta.requirement
        if new.id in known and not _repeats(known[new.id][1], delta):
            capability, old = known[new.id]
            yield SpecProblem(
                code="restated",
                requirement=new.id,
                message=f"it is a current requirement of {capability} with another text, and no "
                'change is stated; say change="modified", or choose another id',
                current=render_requirement(old),
                proposed=render_requirement(new),
            )


def _repeats(old: CurrentRequirement, delta: Delta) -> bool:
    """Return whether a text repeats a current requirement, or only names it."""
    new = delta.requirement
    if not new.scenarios:
        words = {collapse_whitespace(one) for one in ("", old.title, old.text)}
        return collapse_whitespace(new.text or new.title) in words
    merged = _merge_requirement(old, delta)
    return merged is not None and compute_revision(merged) == compute_revision(old)


def _find_annotated_blocks(lines: list[str], prose: frozenset[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last line of each annotated requirement."""
    opened = None
    for index in sorted(prose):
        if _OPEN.fullmatch(lines[index]):
            if opened is not None:
                raise MalformedSpec(f"the requirement of line {opened + 1} is not closed")
            opened = index
        elif _CLOSE.fullmatch(lines[index]) and opened is not None:
            yield opened, index
            opened = None

    if opened is not None:
        raise MalformedSpec(f"the requirement of line {opened + 1} is not closed")


def _find_listed_scenarios(lines: list[str], prose: frozenset[int]) -> dict[str, list[Scenario]]:
    """Return the scenarios that are listed outside of their requirements, by requirement."""
    found: dict[str, list[Scenario]] = {}
    borders = [index for index in sorted(prose) if _BORDER.match(lines[index])]
    for index, end in zip(borders, [*borders[1:], len(lines)], strict=False):
        heading = _LISTED_SCENARIO.fullmatch(lines[index])
        if heading is None:
            continue
        text, bindings, _ = read_sections(lines[index + 1 : end])
        for id_ in re.findall(REQUIREMENT_ID, heading[2]):
            found.setdefault(id_, []).append(Scenario(heading[1], text, bindings))
    return found


def _read_delta(
    attributes: Mapping[str, str],
    body: list[str],
    listed: Mapping[str, Iterable[Scenario]],
    line: int,
) -> Delta:
    """Read one change of a requirement from its annotation and text."""
    id_ = attributes.get("id", "")
    change = attributes["change"]
    capability = attributes.get("capability", "") or guess_capability(id_)
    if change not in tuple(Change):
        raise MalformedSpec(f"{id_}: change must be one of {', '.join(Change)}, not {change}")
    if not re.fullmatch(REQUIREMENT_ID, id_) or not is_capability(capability):
        raise MalformedSpec(f"{id_ or 'a change'} needs an id such as FR-AUTH-001")
    if change == Change.RENAMED and not re.fullmatch(REQUIREMENT_ID, attributes.get("was", "")):
        raise MalformedSpec(f'{id_}: a renamed requirement needs was="OLD-ID"')

    dropped = []
    kept = []
    for one in body:
        removal = _DROPPED.fullmatch(one[:MAX_LINE_CHARS])
        if removal:
            dropped.append(removal[1])
        else:
            kept.append(one)

    title, kept = _take_title(kept)
    text, bindings, scenarios = read_sections(kept)
    own = {one.name for one in scenarios}
    return Delta(
        change=Change(change),
        requirement=CurrentRequirement(
            id=id_,
            title=title,
            text=_simplify_text(text),
            priority=attributes.get("priority", ""),
            scenarios=(*scenarios, *(one for one in listed.get(id_, ()) if one.name not in own)),
            bindings=bindings,
        ),
        start=attributes.get("from", ""),
        capability=capability,
        was=attributes.get("was", ""),
        dropped=tuple(dropped),
        line=line,
    )


def _take_title(lines: list[str]) -> tuple[str, list[str]]:
    """Return the heading above the text of a requirement, and the other lines."""
    first = next((index for index, line in enumerate(lines) if line.strip()), None)
    heading = _TITLE.fullmatch(lines[first][:MAX_LINE_CHARS]) if first is not None else None
    if first is None or heading is None or heading[1].startswith("Scenario:"):
        return "", lines
    return heading[1], lines[first + 1 :]


def _simplify_text(text: str) -> str:
    """Remove the requirement's own id, and the bullet of a single line."""
    text = _OWN_ID.sub("", text, count=1) if _OWN_ID.match(text) else text
    if "\n" not in text:
        text = re.sub(r"^[-*+]\s+", "", text)
    return text


def is_capability(name: str) -> bool:
    """Return whether a text can be the name of a capability, and so of its document."""
    return _CAPABILITY.fullmatch(name) is not None


def guess_capability(id_: str) -> str:
    """Return the capability that an id names: `auth` for FR-AUTH-001, `general` for FR-001."""
    return "-".join(id_.split("-")[1:-1]).lower() or "general"


def find_requirement(
    specs: Mapping[str, CapabilitySpec], id_: str
) -> tuple[str, CurrentRequirement] | None:
    """Return the capability and the current text of a requirement."""
    for capability, spec in specs.items():
        if id_ in spec.requirements:
            return capability, spec.requirements[id_]
    return None


def apply_deltas(specs: Mapping[str, CapabilitySpec], deltas: Iterable[Delta]) -> AppliedDeltas:
    """Apply all changes, or report why not."""
    now = dict(specs)
    problems: list[SpecProblem] = []
    for delta in deltas:
        found = find_requirement(now, delta.target)
        if problem := _find_problem(now, delta, found):
            problems.append(problem)
        elif found is None:
            spec = now.get(delta.capability) or _make_capability(delta.capability)
            now[delta.capability] = _insert(spec, delta.requirement)
        else:
            capability, old = found
            new = _merge_requirement(old, delta)
            now[capability] = _replace_block(now[capability], old.id, new)

    return AppliedDeltas(now, tuple(problems))


def _find_problem(
    specs: Mapping[str, CapabilitySpec],
    delta: Delta,
    found: tuple[str, CurrentRequirement] | None,
) -> SpecProblem | None:
    """Return the reason why a change cannot be applied to the current requirement."""
    code, message = _find_text_problem(found[1] if found else None, delta)
    revision = compute_revision(found[1]) if found else ""
    if delta.change is Change.ADDED:
        if found:
            code = "exists"
            message = f"it already exists in {found[0]}; choose another id, or state it as modified"
    elif found is None:
        code, message = "unknown", "no current specification has it"
    elif delta.was and find_requirement(specs, delta.requirement.id):
        code, message = "exists", f"the new id {delta.requirement.id} is in use"
    elif not delta.start:
        code, message = "no-start", f'say which text it starts from: from="{revision}"'
    elif delta.start != revision:
        code = "stale"
        message = (
            f"it was changed since: it starts from {delta.start}, "
            f"and the current text is {revision}"
        )

    if not code:
        return None

    proposed = delta.requirement
    return SpecProblem(
        code=code,
        requirement=delta.target,
        message=message,
        current=render_requirement(found[1]) if found else "",
        proposed="" if delta.change is Change.REMOVED else render_requirement(proposed),
    )


def _find_text_problem(old: CurrentRequirement | None, delta: Delta) -> tuple[str, str]:
    """Return the code and the description of the problem of the new text; empty if it has none."""
    if not _is_one_requirement(delta):
        return (
            "bad-heading",
            "its text has headings of other requirements or sections; use level 4 or below",
        )
    if old is None or _keeps_text(delta):
        return "", ""
    if old.text and not delta.requirement.text:
        return "lost-text", "the change would lose its text: state the whole new text"
    if lost := _find_lost_scenarios(old, delta):
        return (
            "lost-scenario",
            f"the change would lose: {', '.join(lost)}; repeat each scenario, "
            'or say "- Removes scenario: NAME"',
        )
    return "", ""


def _is_one_requirement(delta: Delta) -> bool:
    """Return whether the new text is read as this one requirement once it is written."""
    new = delta.requirement
    if delta.change is Change.REMOVED:
        return True
    try:
        blocks = parse_spec(render_requirement(new)).blocks
    except MalformedSpec:
        return False
    if len(blocks) != 1 or isinstance(blocks[0], str) or blocks[0].id != new.id:
        return False
    return compute_revision(blocks[0]) == compute_revision(new)


def _find_lost_scenarios(old: CurrentRequirement, delta: Delta) -> list[str]:
    """Return the scenarios that the new text does not have, or has only as a heading."""
    new = delta.requirement.scenarios
    names = Counter(one.name for one in old.scenarios) - Counter(one.name for one in new)
    empty = {one.name for one in new if not one.text}
    emptied = [one.name for one in old.scenarios if one.text and one.name in empty]
    lost = dict.fromkeys((*names, *emptied))
    return [name for name in lost if name not in delta.dropped]


def _keeps_text(delta: Delta) -> bool:
    """Return whether a change has no text of its own on purpose."""
    if delta.change is Change.RENAMED:
        return not _has_content(delta.requirement)
    return delta.change is Change.REMOVED


def _has_content(requirement: CurrentRequirement) -> bool:
    return bool(requirement.text or requirement.scenarios)


def _merge_requirement(old: CurrentRequirement, delta: Delta) -> CurrentRequirement | None:
    """Return the requirement after the change, or None if it is removed.

    The author does not repeat the tests that are bound already.
    """
    new = delta.requirement
    if delta.change is Change.REMOVED:
        return None
    if not _has_content(new):
        return msgspec.structs.replace(old, id=new.id, title=new.title or old.title)

    before = {one.name: one for one in old.scenarios}
    scenarios = tuple(
        msgspec.structs.replace(
            one, bindings=_join(before[one.name].bindings if one.name in before else (), one)
        )
        for one in new.scenarios
    )
    return msgspec.structs.replace(
        new,
        title=new.title or old.title,
        priority=new.priority or old.priority,
        scenarios=scenarios,
        bindings=_join(old.bindings, new),
    )


def _join(old: tuple[Binding, ...], new: CurrentRequirement | Scenario) -> tuple[Binding, ...]:
    known = {(one.kind, one.target) for one in old}
    return (*old, *(one for one in new.bindings if (one.kind, one.target) not in known))


def _make_capability(name: str) -> CapabilitySpec:
    title = name.replace("-", " ").replace("_", " ")
    return CapabilitySpec((f"# {title[:1].upper()}{title[1:]}", "## Requirements"))


def _insert(spec: CapabilitySpec, requirement: CurrentRequirement) -> CapabilitySpec:
    """Insert a requirement after the last one."""
    last = max(
        (index for index, one in enumerate(spec.blocks) if not isinstance(one, str)),
        default=len(spec.blocks) - 1,
    )
    return CapabilitySpec((*spec.blocks[: last + 1], requirement, *spec.blocks[last + 1 :]))


def _replace_block(
    spec: CapabilitySpec, id_: str, new: CurrentRequirement | None
) -> CapabilitySpec:
    blocks: list[CurrentRequirement | str] = []
    for block in spec.blocks:
        if isinstance(block, str) or block.id != id_:
            blocks.append(block)
        elif new is not None:
            blocks.append(new)
    return CapabilitySpec(tuple(blocks))


def fill_starts(deltas: Iterable[Delta], specs: Mapping[str, CapabilitySpec]) -> tuple[Delta, ...]:
    """Add the revision that a change starts from where the author left it out."""
    filled = []
    for delta in deltas:
        found = find_requirement(specs, delta.target)
        if found and not delta.start and delta.change is not Change.ADDED:
            filled.append(delta._replace(start=compute_revision(found[1])))
        else:
            filled.append(delta)
    return tuple(filled)


def stamp_deltas(text: str, specs: Mapping[str, CapabilitySpec]) -> str:
    """Write the revision that a change starts from where the author left it out."""
    deltas = read_deltas(text)
    filled = fill_starts(deltas, specs)
    if filled == deltas:
        return text

    lines = split_lines(text)
    for before, after in zip(deltas, filled, strict=True):
        if before != after:
            index = after.line - 1
            lines[index] = re.sub(r"\s*-->", f' from="{after.start}" -->', lines[index], count=1)
    return "\n".join(lines)


def find_delta_conflicts(
    own: Iterable[Delta], others: Mapping[str, Iterable[Delta]]
) -> Iterator[SpecProblem]:
    """Yield the requirements that this feature and another open one change or create."""
    mine = {id_: delta for delta in own for id_ in delta.ids}
    for slug, deltas in others.items():
        for other in deltas:
            shared = next((id_ for id_ in other.ids if id_ in mine), None)
            if shared:
                theirs = render_requirement(other.requirement)
                yield SpecProblem(
                    code="conflict",
                    requirement=shared,
                    message=f"{slug} changes this requirement too; whichever is merged second "
                    "must start from the other's text",
                    current=f"({slug}, {other.change})\n{theirs}",
                    proposed=render_requirement(mine[shared].requirement),
                )
