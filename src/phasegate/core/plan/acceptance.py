"""Acceptance tests: written before the code, by an agent that does not write it, then sealed.

A test belongs to the requirement whose id is in its name: `test_fr_bye_001_names_the_user` shows
FR-BYE-001.
"""

from __future__ import annotations

import ast
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from phasegate.core.plan.requirements import Requirement

ACCEPTANCE_FOLDER = "acceptance/"
# The default patterns of test runners do not find these files, so that nobody else's run is red
_FILE_NAME = re.compile(r"acceptance/(accept_\w+\.py)")
_RUNNER = re.compile(
    r"(?P<wrapper>(?:(?:uv|poetry|pdm|pipenv) run )?)"
    r"(?:(?P<python>\S*python[\d.]*(?: -[^m\s]\S*)*) -m )?(?P<runner>pytest|unittest)\b"
)
_STARTUP_FILES = ("sitecustomize.py", "usercustomize.py")
_RUNNER_MODULES = frozenset(("pytest", "_pytest", "pluggy", "unittest", "_phasegate"))
_MODULE = re.compile(r"\.(?:py|pyc|pyw|so|pyd)$")
_RUNNER_WORDS = re.compile(
    r"\b(?:_?pytest|unittest|PYTEST_\w+|pluggy|sitecustomize|_exit|_getframe|settrace|setprofile"
    r"|get_objects|get_referrers|currentframe|f_back|getsitepackages|phasegate-acceptance)\b"
    r"|site-packages|\bsys\.modules\b(?!\[__name__\])"
)
# Two literals that are joined in the source are one word when the code runs
_JOINED_LITERALS = re.compile(r"(['\"])\s*\+?\s*[rbf]?\1")
_TEST_PATH = re.compile(r"(?:^|/)(?:tests?/|test_|conftest\.py|\w+_test\.py$)")
_MAX_QUOTE_CHARS = 120


class AcceptanceSeal(msgspec.Struct, frozen=True):
    """The acceptance tests of a feature, as they were proven red on a commit."""

    # The commit with the requirements and the tests, before any code
    commit: str
    # Hash of the stored bytes, by file name
    files: dict[str, str]
    # Tests and text hash of each requirement
    tests: dict[str, tuple[str, ...]]
    revisions: dict[str, str]


class SealedTests(NamedTuple):
    """The sealed acceptance tests, and the requirements whose tests must already pass."""

    seal: AcceptanceSeal
    due: tuple[str, ...]


class SingleFileRunner(NamedTuple):
    """A known test runner, and the Python command that has it."""

    name: str
    python: str


def find_test_runner(command: str) -> SingleFileRunner | None:
    """Return the runner of a test command, or None if it cannot run single files."""
    match = _RUNNER.match(command.strip())
    if match is None:
        return None
    return SingleFileRunner(match["runner"], match["wrapper"] + (match["python"] or "python3"))


def find_acceptance_phase(phases: Sequence[str]) -> str:
    """Return the phase in which acceptance tests are written; empty if there is none."""
    for key in ("05-test-strategy", "04-design", "01-requirements"):
        if key in phases and "06-implementation" in phases:
            return key
    return ""


def hash_requirement(requirement: Requirement) -> str:
    """Return the revision of a requirement: the hash of its text."""
    return sha256(requirement.text.encode()).hexdigest()[:16]


def select_test_files(documents: Mapping[str, str]) -> dict[str, str]:
    """Return the acceptance tests among the documents of a feature, by file name."""
    matches = ((_FILE_NAME.fullmatch(path), text) for path, text in documents.items())
    return {match[1]: text for match, text in matches if match}


def is_acceptance_test(path: str, features_folder: str) -> bool:
    """Return True for an acceptance test in the folder of a feature."""
    folder, _, rest = path.removeprefix(f"{features_folder}/").partition("/")
    is_inside = path.startswith(f"{features_folder}/") and bool(folder)
    return is_inside and _FILE_NAME.fullmatch(rest) is not None


def list_test_ids(name: str, text: str) -> Iterator[str]:
    """Yield the ids of the tests in a file, without importing it; raise SyntaxError."""
    for node in ast.parse(text, name).body:
        if isinstance(node, ast.ClassDef):
            members = [one for one in node.body if _is_test(one)]
            yield from (f"{name}::{node.name}::{_get_name(one)}" for one in members)
        elif _is_test(node):
            yield f"{name}::{_get_name(node)}"


def _is_test(node: ast.stmt) -> bool:
    return _get_name(node).startswith("test")


def _get_name(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name
    return ""


def assign_tests(
    requirements: Iterable[Requirement], ids: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return the tests of each requirement: those that have its id in their name."""
    found = {}
    for requirement in requirements:
        words = re.sub(r"\W", "_", requirement.id).lower()
        pattern = re.compile(rf"(?<![a-z0-9]){re.escape(words)}(?![a-z0-9])")
        found[requirement.id] = tuple(
            id_ for id_ in ids if pattern.search(id_.rpartition("::")[2].lower())
        )
    return found


def find_test_outcome(id_: str, outcomes: Mapping[str, str]) -> str:
    """Return the outcome of a test, with all of its parameters; an error if it did not run."""
    found = {
        outcome for name, outcome in outcomes.items() if name == id_ or name.startswith(f"{id_}[")
    }
    if found == {"passed"}:
        return "passed"
    return min(found - {"passed"}, default="not run")


def find_due_requirements(
    package: str, requirements: Mapping[str, Sequence[str]], done: Iterable[str]
) -> tuple[str, ...]:
    """Return the requirements that are complete with this package.

    `requirements` has those of every package. One that another package still works on is not due.
    """
    finished = {package, *done}
    return tuple(
        name
        for name in requirements.get(package, ())
        if all(name not in names or other in finished for other, names in requirements.items())
    )


def find_interference(added: Mapping[str, str], sealed_folder: str) -> Iterator[str]:
    """Yield changes that could affect how sealed tests run, with the path that makes them.

    `added` has the added lines of each changed file.
    """
    for path, text in sorted(added.items()):
        # Python and some file systems compare names in this form
        normal = unicodedata.normalize("NFKC", path)
        *folders, name = normal.removeprefix("src/").split("/")
        # Also `pdb.pyc` and `pdb.cpython-311-x86_64-linux-gnu.so`
        modules = [*folders, name.partition(".")[0]] if _MODULE.search(name) else folders
        is_test = _TEST_PATH.search(path) is not None
        shadowed = [one for one in modules if one in _RUNNER_MODULES and not is_test]
        shadowed += [one for one in modules[:1] if one in _RUNNER_MODULES | sys.stdlib_module_names]
        if normal.casefold().startswith(sealed_folder):
            yield f"{path} is in the folder of the sealed tests"
        elif name in _STARTUP_FILES or name.endswith(".pth"):
            yield f"{path} runs code when Python starts"
        elif shadowed:
            yield f"{path} shadows the module {shadowed[0]}"
        elif name.endswith(".py") and not is_test:
            for line in unicodedata.normalize("NFKC", text).splitlines():
                joined = _JOINED_LITERALS.sub("", line)
                if _RUNNER_WORDS.search(line) or _RUNNER_WORDS.search(joined):
                    yield f"{path} refers to the test runner: {line.strip()[:_MAX_QUOTE_CHARS]}"
                    break
