"""Choose mutants of existing code that the rewritten parts of tests were about.

A test that was rewritten has to notice what it noticed before: a fixture, a helper, a table of
cases or an assertion may have lost its effect in more ways than a pattern can name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from phasegate.core.test_strength.blocks import (
    list_functions,
    split_tests,
)
from phasegate.core.test_strength.compare import ChangedText, Outcomes
from phasegate.core.test_strength.dilution import list_added_lines
from phasegate.core.test_strength.model import TestOutcome
from phasegate.core.test_strength.mutants import EMPTIED, Mutant, make_mutants

MAX_PROBES = 6
_PER_FUNCTION = 2
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_NO_CODE = re.compile(r"\s*(?:$|#|//|import\b|from\b|export \*|const .*\brequire\()")
# A changed result says more than none: many weak assertions notice that there is none
_ORDER = ("arithmetic", "comparison", "boundary", "boolean", "constant", "return value", EMPTIED)


def list_rewritten_words(changed: Sequence[ChangedText]) -> tuple[str, ...]:
    """Return the words of test files of which lines were removed, those of these lines first."""
    first: dict[str, None] = {}
    rest: dict[str, None] = {}
    for file in changed:
        removed = _list_removed(file)
        for line in removed:
            first.update(dict.fromkeys(_WORD.findall(line)))
        if removed:
            rest.update(dict.fromkeys(_WORD.findall(file.old or "")))
    return tuple({**first, **rest})


def has_rewritten_helpers(changed: Sequence[ChangedText]) -> bool:
    """Return True if a file that other tests use was rewritten: it has no tests of its own."""
    return any(
        _list_removed(file) and not split_tests(file.path, file.old or "") for file in changed
    )


def _list_removed(file: ChangedText) -> list[str]:
    """Return the lines that were removed, and those of tests that changed in any way.

    A line that was only moved into a loop or a block that swallows failures is still there.
    """
    if file.old is None:
        return []
    backwards = ChangedText(file.path, file.new, file.old)
    removed = [line for _, line in list_added_lines(backwards)]
    kept = {block.text for block in split_tests(file.path, file.new or "")}
    for block in split_tests(file.path, file.old):
        if block.text not in kept:
            removed += block.text.splitlines()
    return [line for line in removed if not _NO_CODE.match(line)]


def choose_probes(code: Mapping[str, str], words: Sequence[str]) -> list[tuple[str, Mutant]]:
    """Return mutants of the functions that these words name, with their files."""
    order = {word: position for position, word in enumerate(words)}
    found = [
        (order[name], path, lines)
        for path, text in code.items()
        for name, lines in list_functions(path, text)
        if name in order
    ]
    probes = [
        (path, mutant)
        for _, path, lines in sorted(found, key=lambda one: one[0])[:MAX_PROBES]
        for mutant in _choose_mutants(path, code[path], lines)
    ]

    return probes[:MAX_PROBES]


def _choose_mutants(path: str, text: str, lines: Collection[int]) -> list[Mutant]:
    """Return the mutants of these lines that most weak assertions do not notice.

    Few are tried: each costs two test runs.
    """
    known = [one for one in make_mutants(path, text, lines) if one.kind in _ORDER]
    return sorted(known, key=lambda one: _ORDER.index(one.kind))[:_PER_FUNCTION]


def find_dulled_tests(base: Outcomes, old: Outcomes, new: Outcomes) -> list[str]:
    """Return the tests that noticed a mutant as they were on the base and pass as changed.

    A test that was split or moved is none: another test that did not notice it before does now.
    """
    before = {
        test
        for test, outcome in old.items()
        if outcome.is_failure and base.get(test) is TestOutcome.PASSED
    }
    after = {test for test, outcome in new.items() if outcome.is_failure}
    if after - before:
        return []
    return sorted(test for test in before if new.get(test) is TestOutcome.PASSED)
