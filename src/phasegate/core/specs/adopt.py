"""Draft requirements for existing code from the tests that show its behavior."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import count
from typing import NamedTuple

from phasegate.core.specs.bindings import (
    find_named_code,
    hash_target,
    list_public_symbols,
)
from phasegate.core.specs.layouts import make_id_prefix
from phasegate.core.specs.spec_file import Binding, CapabilitySpec, CurrentRequirement
from phasegate.core.test_strength.blocks import split_tests


class AdoptionDraft(NamedTuple):
    """Draft requirements, and the code that they do not cover."""

    spec: CapabilitySpec
    # Public functions and classes that no test names
    uncovered: tuple[str, ...]
    # Tests that are left for the next slice, and those that do not pass
    left: tuple[str, ...]
    failing: tuple[str, ...]


def draft_requirements(
    capability: str,
    code: Mapping[str, str],
    tests: Mapping[str, str],
    current: CapabilitySpec,
    passes: Callable[[str], bool],
    limit: int,
    used: Collection[str] = (),
) -> AdoptionDraft:
    """Draft a requirement for each test that names code of a folder.

    Tests that the current specification is bound to are left out. `passes` says whether a test
    passes today. `used` are ids that must not be given again: those of removed requirements.
    """
    files = {**tests, **code}
    known = current.requirements.values()
    bound = {binding.target for one in known for binding in one.all_bindings}
    ids = (f"{make_id_prefix(capability)}-{number:03}" for number in count(1))
    taken = {*used, *current.requirements}
    free_ids = (id_ for id_ in ids if id_ not in taken)
    requirements: list[CurrentRequirement] = []
    left = []
    failing = []
    covered: set[str] = set()
    for target, named in find_tests(code, tests):
        covered.update(named)
        if target in bound:
            continue
        if not passes(target):
            failing.append(target)
        elif len(requirements) == limit:
            left.append(target)
        else:
            requirements.append(_draft(next(free_ids), target, named, files))

    symbols = [one for path, text in code.items() for one in list_public_symbols(path, text)]
    return AdoptionDraft(
        spec=CapabilitySpec(tuple(requirements)),
        uncovered=tuple(one for one in symbols if one not in covered),
        left=tuple(left),
        failing=tuple(failing),
    )


def find_tests(
    code: Mapping[str, str], tests: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each test that names code, with the code."""
    for path, text in sorted(tests.items()):
        for block in split_tests(path, text):
            named: list[str] = []
            for code_path, code_text in sorted(code.items()):
                named += find_named_code(block.text, code_path, "", code_text)
            if named:
                name = block.name.replace(".", "::") if path.endswith(".py") else block.name
                yield f"{path}::{name}", tuple(named)


def _draft(
    id_: str, target: str, named: tuple[str, ...], files: Mapping[str, str]
) -> CurrentRequirement:
    """Draft a requirement that a passing test shows."""
    bindings = [Binding("test", target, hash_target(target, files))]
    for one in named:
        bindings.append(Binding("code", one, hash_target(one, files)))

    words = re.sub(r"^test_?|_", " ", target.rpartition("::")[2]).strip()
    return CurrentRequirement(
        id=id_,
        title=words[:1].upper() + words[1:],
        text="Observed: its test passes today. Nobody has stated it as a requirement yet.",
        bindings=tuple(bindings),
    )
