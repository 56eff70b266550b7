"""Convert the specifications of OpenSpec and Spec Kit to current specifications.

Headings and lists of requirements get ids; all other text stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import count

from phasegate.core.specs.spec_file import (
    REQUIREMENT_ID,
    CapabilitySpec,
    CurrentRequirement,
    MalformedSpec,
    compute_revision,
    find_prose_lines,
    parse_spec,
    render_requirement,
    render_spec,
    split_lines,
)
from phasegate.core.text.markdown_lines import collapse_whitespace

_OPENSPEC_HEADING = re.compile(r"###\s+Requirement:\s*(.*?)\s*")
_SECTION = re.compile(r"##\s+(ADDED|MODIFIED|REMOVED)\s+Requirements\s*", re.I)
_RENAMED = re.compile(r"^##\s+RENAMED\s+Requirements\s*$", re.I | re.M)
_BORDER = re.compile(r"#{1,3}\s")
_RENAMED_PAIR = re.compile(
    r"FROM:\s*`?(?:###\s+Requirement:\s*)?([^`\n]+?)`?[ \t]*\n"
    r"\s*(?:[-*]\s+)?TO:\s*`?(?:###\s+Requirement:\s*)?([^`\n]+?)`?[ \t]*(?:\n|$)"
)
_SPECKIT_ITEM = re.compile(r"\s*[-*]\s+\*\*((?:FR|NFR)-(?:[A-Z0-9]+-)*([0-9]{1,6}))\*\*:?\s*(.*)")
# A row of a table of requirements: id, text, and the priority if there is one
_SPECKIT_ROW = re.compile(
    r"\s*\|\s*[*`]{0,2}((?:FR|NFR)-(?:[A-Z0-9]+-)*([0-9]{1,6}))[*`]{0,2}\s*\|(.+)\|\s*"
)
_SPECKIT_HEADING = re.compile(r"#{2,6}\s+((?:FR|NFR)-(?:[A-Z0-9]+-)*([0-9]{1,6}))[:.]?\s*(.*?)\s*")
_KNOWN_ID = re.compile(rf"({REQUIREMENT_ID}):?\s*(.*)")
_CELL_BORDER = re.compile(r"(?<!\\)\|")
_MAX_PARTS = 6
_MAX_PART_CHARS = 24


def make_id_prefix(capability: str) -> str:
    """Return the beginning of the ids of a capability: FR-CLI-ARCHIVE for cli-archive."""
    parts = re.findall(r"[A-Z0-9]+", capability.upper())[:_MAX_PARTS]
    return "-".join(("FR", *(part[:_MAX_PART_CHARS] for part in parts)))


def convert_openspec(text: str, capability: str) -> str:
    """Convert `openspec/specs/NAME/spec.md`; raise MalformedSpec.

    A requirement that has an id in its name keeps it.
    """
    lines = split_lines(text)
    prefix = make_id_prefix(capability)
    numbers = count(1)
    for index in sorted(find_prose_lines(text)):
        heading = _OPENSPEC_HEADING.fullmatch(lines[index])
        if heading is None:
            continue
        known = _KNOWN_ID.fullmatch(heading[1])
        if known:
            lines[index] = f"### {known[1]}: {known[2]}"
        else:
            lines[index] = f"### {prefix}-{next(numbers):03}: {heading[1]}"
    return _normalize(lines)


def convert_openspec_change(
    text: str, capability: str, current: CapabilitySpec, used: Collection[str] = ()
) -> str:
    """Convert `openspec/changes/NAME/specs/CAPABILITY/spec.md` to changes for a feature's spec.md.

    OpenSpec finds a requirement by its name. `used` are ids of removed requirements, which are not
    given again. Raise MalformedSpec for a name that is not there.
    """
    by_name = {_fold(one.title): one for one in current.requirements.values()}
    prefix = make_id_prefix(capability)
    ids = (f"{prefix}-{number:03}" for number in count(1))
    taken = {*used, *current.requirements}
    free_ids = (id_ for id_ in ids if id_ not in taken)
    pairs = _RENAMED_PAIR.findall(text) if _RENAMED.search(text) else []
    renamed = [(_find_by_name(by_name, old), new) for old, new in pairs]
    # A change of a renamed requirement has the new name
    by_new_name = {_fold(new): old for old, new in renamed}
    changes = []
    changed = set()
    for section, name, body in _find_changes(text):
        old = None
        id_ = ""
        if section == "added":
            known = _KNOWN_ID.fullmatch(name)
            id_ = known[1] if known else next(free_ids)
        else:
            old = by_new_name.get(_fold(name)) or _find_by_name(by_name, name)
            id_ = old.id
        changed.add(id_)
        changes.append(_render_change(section, capability, id_, old, f"### {name}\n\n{body}"))

    # A requirement that is renamed only keeps its words
    for old, new in renamed:
        if old.id not in changed:
            _, _, body = render_requirement(old).partition("\n")
            changes.append(
                _render_change("modified", capability, old.id, old, f"### {new}\n{body}")
            )
    return "\n\n".join(changes)


def _fold(name: str) -> str:
    return collapse_whitespace(name).casefold()


def _find_by_name(by_name: Mapping[str, CurrentRequirement], name: str) -> CurrentRequirement:
    found = by_name.get(_fold(name))
    if found is None:
        raise MalformedSpec(f"no current requirement is named {name!r}: it was renamed or removed")
    return found


def _find_changes(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the section, the name and the text of each changed requirement."""
    lines = split_lines(text)
    headings = [index for index in sorted(find_prose_lines(text)) if _BORDER.match(lines[index])]
    section = ""
    for index, end in zip(headings, [*headings[1:], len(lines)], strict=True):
        heading = _OPENSPEC_HEADING.fullmatch(lines[index])
        if found := _SECTION.fullmatch(lines[index]):
            section = found[1].lower()
        elif lines[index].startswith("## "):
            section = ""
        elif section and heading:
            yield section, heading[1], "\n".join(lines[index + 1 : end]).strip()


def _render_change(
    section: str, capability: str, id_: str, old: CurrentRequirement | None, text: str
) -> str:
    start = f' from="{compute_revision(old)}"' if old else ""
    opening = f'<!-- sk:fr id="{id_}" change="{section}" capability="{capability}"{start} -->'
    return f"{opening}\n{text}\n<!-- /sk:fr -->"


def convert_speckit(text: str, capability: str) -> str:
    """Convert `specs/NNN-NAME/spec.md` of Spec Kit; raise MalformedSpec.

    Its ids count from 1 in every feature, so they get the name of the feature: FR-001 of
    003-photo-album becomes FR-PHOTO-ALBUM-001.
    """
    lines = split_lines(text)
    prefix = make_id_prefix(capability)
    for index in sorted(find_prose_lines(text)):
        line = lines[index]
        if heading := _SPECKIT_HEADING.fullmatch(line):
            lines[index] = f"### {_qualify(prefix, heading)}: {heading[3]}".removesuffix(": ")
        elif found := _SPECKIT_ITEM.fullmatch(line):
            lines[index] = f"\n### {_qualify(prefix, found)}\n\n{found[3]}"
        elif found := _SPECKIT_ROW.fullmatch(line):
            cells = "\n\n".join(cell.strip() for cell in _CELL_BORDER.split(found[3]))
            lines[index] = f"\n### {_qualify(prefix, found)}\n\n{cells}"
    return _normalize(lines)


def _qualify(prefix: str, found: re.Match[str]) -> str:
    """Return the id of a requirement with the name of its feature; NFR- stays."""
    kind = found[1].partition("-")[0]
    return f"{kind}{prefix.removeprefix('FR')}-{found[2]}"


def _normalize(lines: Iterable[str]) -> str:
    return render_spec(parse_spec("\n".join(lines)))
