"""Draft requirements from an agent's proposal for existing code, and from its tests.

A requirement is observed if its test passes, asserts something and names the code. One whose test
does not pass is dropped. One without such a test is inferred, and uncovered.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import count, takewhile
from typing import NamedTuple

import msgspec

from phasegate.core.specs.bindings import find_named_code, hash_target, list_public_symbols
from phasegate.core.specs.layouts import make_id_prefix
from phasegate.core.specs.spec_file import (
    Binding,
    CapabilitySpec,
    CurrentRequirement,
    MalformedSpec,
    Scenario,
    parse_spec,
    render_spec,
)
from phasegate.core.test_strength.blocks import TestBlock, split_tests
from phasegate.core.text.markdown_lines import collapse_whitespace
from phasegate.typed import read_value

OBSERVED = "Observed: its test passes today. Nobody has stated it as a requirement yet."
INFERRED = "Inferred from the code, uncovered: no test shows it. Nobody has stated it yet."
_BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```[ \t]*$", re.M | re.S)
_MAX_TITLE_CHARS = 120


class ProposedRequirement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A requirement that an agent proposes, with the name of its test."""

    title: str
    text: str
    scenario: str = ""
    test: str = ""


class Proposal(msgspec.Struct, frozen=True):
    """The requirements and the test file of an agent's answer."""

    requirements: tuple[ProposedRequirement, ...]
    tests: str = ""


class CharacterisedCode(NamedTuple):
    """Draft requirements, and the test file that shows the observed ones."""

    spec: CapabilitySpec
    tests: str
    # Names of its tests
    passing: tuple[str, ...]
    # Titles of the requirements without a test, and of those whose test does not pass
    inferred: tuple[str, ...]
    failing: tuple[str, ...]


def select_slice(
    code: Mapping[str, str], current: CapabilitySpec, max_chars: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the next files of one language that no requirement is bound to, and the files left."""
    bound: set[str] = set()
    for requirement in current.requirements.values():
        bound.update(one.target.partition("::")[0] for one in requirement.all_bindings)

    fresh = [
        path
        for path in sorted(code, key=lambda path: (not path.endswith(".py"), path))
        if path not in bound and list_public_symbols(path, code[path])
    ]
    size = 0
    taken: list[str] = []
    for path in fresh:
        size += len(code[path])
        is_other = bool(taken) and path.endswith(".py") != taken[0].endswith(".py")
        if is_other or (taken and size > max_chars):
            break
        taken.append(path)
    return tuple(taken), tuple(fresh[len(taken) :])


def name_test_file(capability: str, code: str, paths: Collection[str], tests: Iterable[str]) -> str:
    """Return a new path for tests of a file: in the nearest folder that has tests."""
    suffix = "." + code.rpartition(".")[2]
    folders = Counter(path.rpartition("/")[0] for path in tests if path.endswith(suffix))

    def rank(folder: str) -> tuple[int, int]:
        pairs = zip(folder.split("/"), code.split("/"), strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        return shared, folders[folder]

    folder = max(sorted(folders), key=rank, default="tests")
    for number in count(1):
        name = capability if number == 1 else f"{capability}-{number}"
        name = f"adopted-{name}.test{suffix}"
        if suffix == ".py":
            name = "test_" + name.removesuffix(f".test{suffix}").replace("-", "_") + suffix
        path = f"{folder}/{name}".lstrip("/")
        if path not in paths:
            break
    return path


def parse_proposal(answer: str) -> Proposal:
    """Parse the TOML block of an answer and the test file after it; raise MalformedSpec."""
    blocks = _BLOCK.findall(answer.replace("\r\n", "\n"))
    texts = [text for language, text in blocks if language == "toml"]
    tests = [text for language, text in blocks if language != "toml"]
    if len(texts) != 1 or len(tests) > 1:
        raise MalformedSpec("it needs one TOML block and at most one test file")
    try:
        proposal = read_value(tomllib.loads(texts[0]), Proposal)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise MalformedSpec(str(error)) from error
    if not proposal.requirements:
        raise MalformedSpec("it has no requirements")
    return msgspec.structs.replace(proposal, tests="".join(tests))


def draft_characterized(
    capability: str,
    proposal: Proposal,
    test_file: str,
    code: Mapping[str, str],
    current: CapabilitySpec,
    find_outcome: Callable[[str], str],
    used: Collection[str] = (),
) -> CharacterisedCode:
    """Draft the requirements of a proposal; raise MalformedSpec.

    `find_outcome` returns the outcome of a test of the test file, by its name. Tests that show no
    requirement are removed from the file.
    """
    blocks = split_tests(test_file, proposal.tests)
    names = Counter(block.name for block in blocks)
    shown = {
        _name_test(test_file, block): _find_shown_code(block, code)
        for block in blocks
        # Of two tests with one name, only the last is run
        if names[block.name] == 1 and block.assertions
    }
    known = {one.title for one in current.requirements.values()}
    new = {
        title: one
        for one in proposal.requirements
        if (title := collapse_whitespace(one.title)[:_MAX_TITLE_CHARS]) not in known
    }
    failing = []
    inferred = []
    kept: dict[str, tuple[str, ...]] = {}
    for title, one in new.items():
        outcome = find_outcome(one.test) if one.test else "not run"
        if outcome not in ("passed", "not run"):
            failing.append(title)
        elif outcome == "passed" and shown.get(one.test):
            kept[title] = shown[one.test]
        else:
            inferred.append(title)

    passing = {new[title].test for title in kept}
    tests = proposal.tests
    for block in blocks:
        if _name_test(test_file, block) not in passing:
            tests = re.sub(r"\n{4,}", "\n\n\n", tests.replace(block.text, "", 1)).rstrip() + "\n"

    files = {**code, test_file: tests}
    ids = (f"{make_id_prefix(capability)}-{number:03}" for number in count(1))
    taken = {*used, *current.requirements}
    free_ids = (id_ for id_ in ids if id_ not in taken)
    spec = CapabilitySpec(
        tuple(
            _draft(next(free_ids), title, new[title], test_file, kept.get(title, ()), files)
            for title in new
            if title not in failing
        )
    )
    if parse_spec(render_spec(spec)).requirements != spec.requirements:
        raise MalformedSpec("a text has headings or bindings of its own")
    return CharacterisedCode(
        spec=spec,
        tests=tests if passing else "",
        passing=tuple(sorted(passing)),
        inferred=tuple(inferred),
        failing=tuple(failing),
    )


def _name_test(test_file: str, block: TestBlock) -> str:
    return block.name.replace(".", "::") if test_file.endswith(".py") else block.name


def _find_shown_code(block: TestBlock, code: Mapping[str, str]) -> tuple[str, ...]:
    """Return the code that a test names."""
    named: list[str] = []
    for path, text in sorted(code.items()):
        named += find_named_code(block.text, path, "", text)
    return tuple(named)


def _draft(
    id_: str,
    title: str,
    one: ProposedRequirement,
    test_file: str,
    shown: tuple[str, ...],
    files: Mapping[str, str],
) -> CurrentRequirement:
    """Draft a requirement; without code that its test shows, it is inferred."""
    test: tuple[Binding, ...] = ()
    code = [Binding("code", target, hash_target(target, files)) for target in shown]
    if shown:
        target = f"{test_file}::{one.test}"
        test = (Binding("test", target, hash_target(target, files)),)

    text = _tidy(one.text)
    scenario = _tidy(one.scenario)
    return CurrentRequirement(
        id=id_,
        title=title,
        text=f"{text}\n\n{OBSERVED if shown else INFERRED}",
        bindings=(*code,) if scenario else (*test, *code),
        scenarios=(Scenario("As it is today", scenario, test),) if scenario else (),
    )


def _tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
