"""Maps every demand clause to the tests that show it, and refuses a stale or wrong map.

Usage: python tools/traceability.py [--check] [--root DIR]
"""

from __future__ import annotations

import argparse
import ast
import re
import string
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

SHOWN_TESTS = 3
ENTRY_FOLDERS = frozenset(
    {"agents", "board", "contract", "crash", "e2e", "fleet", "forges", "hostile"}
)
SECTIONS = "NWTPDRXMEL"
# How a test starts a whole run: words of a command line, or methods of the test projects
RUNS = frozenset({'"run"', '"dispatch"', '"demo"', ".drive", ".dispatch"})
LEVELS = ("whole run", "entry", "rules only")
# How it looks at what came of it
RESULTS = frozenset(
    {".prompt", ".prompts", ".stdout", ".stderr", ".output", ".show", ".trail", ".reason", ".state"}
    | {".git", ".json", ".jobs", ".gates", ".rows", ".files_of", ".packages", ".happened", ".saved"}
    | {".read_text", ".read_bytes", ".seen", ".decode", "blocks_in", "expect_stories"}
)
DEMAND_ID = re.compile(rf"[{SECTIONS}][1-9][0-9]*")
HEAD = """# Traceability

Which tests show which demand. Made from [demands.toml](demands.toml) and the `pytest.mark.demand` marks in `tests/`.
*Whole run*: a test carries a feature or a package through its steps with agents (`run`, `dispatch`, `demo`) and looks at what came of it: prompts,
output, documents, trails. *Entry*: tests go through the product's entry, without such a run. *Rules only*: all tests call the code behind it.
Whether a test is a whole run is read from its source: it, or a helper of its module, starts one and reads the result.
Do not edit: run `make traceability`.
"""
Scope = ast.Module | ast.ClassDef
Function = ast.FunctionDef | ast.AsyncFunctionDef


class TraceabilityError(Exception):
    """The demands or the marks are wrong; the message says where."""


class Demand(NamedTuple):
    id: str
    title: str
    clauses: dict[str, str]


class Sighting(NamedTuple):
    clause: str
    line: int


class Mark(NamedTuple):
    sighting: Sighting
    test: str
    is_whole_run: bool = False

    @property
    def clause(self) -> str:
        return self.sighting.clause

    @property
    def level(self) -> str:
        if self.test.split("/")[1] not in ENTRY_FOLDERS:
            return "rules only"
        return "whole run" if self.is_whole_run else "entry"


Constants = dict[str, list[Sighting]]


def demands_in(toml_text: str) -> list[Demand]:
    """The demands in the order of the specification (N2 before N10); anything malformed is refused."""
    try:
        tables = tomllib.loads(toml_text)
    except tomllib.TOMLDecodeError as error:
        raise TraceabilityError(f"demands.toml is no TOML: {error}") from error
    return sorted(
        (_demand(id_, table) for id_, table in tables.items()),
        key=lambda demand: _natural(demand.id),
    )


def _demand(id_: str, table: object) -> Demand:
    if not DEMAND_ID.fullmatch(id_) or not isinstance(table, dict):
        raise TraceabilityError(
            f"demands.toml: [{id_}] is no demand: expected a table named like N1"
        )
    texts = {key: _sentence(f"{id_}.{key}", value) for key, value in table.items()}
    title = texts.pop("title", None)
    if title is None:
        raise TraceabilityError(f"demands.toml: {id_} has no title")
    # Letters without gaps, so that a clause cannot vanish unnoticed.
    if not texts or list(texts) != list(string.ascii_lowercase[: len(texts)]):
        raise TraceabilityError(
            f"demands.toml: the clauses of {id_} are not a, b, c … in order: {', '.join(texts)}"
        )
    return Demand(id_, title, texts)


def _sentence(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\n" in value:
        raise TraceabilityError(f"demands.toml: {name} is not one line of text")
    return value


def marks_in(source: bytes, path: str) -> list[Mark]:
    """The demand marks of one test module; a mark that reaches no test is refused."""
    try:
        module = ast.parse(source, path)
    except SyntaxError as error:
        raise TraceabilityError(f"{path} cannot be parsed: {error}") from error
    helpers = {node.name: node for node in module.body if isinstance(node, Function)}
    marks = [
        mark._replace(is_whole_run=is_whole_run(function, helpers))
        for function, mark in _scope_marks(module, path, [], _constants(module, path))
    ]
    reached = {mark.sighting for mark in marks}
    for sighting in _sightings(module, path):
        # A mark that counts for nothing would look like a test that shows its demand.
        if sighting not in reached:
            raise TraceabilityError(
                f"{path}:{sighting.line}: the mark {sighting.clause} reaches no test"
            )
    return marks


def is_whole_run(test: Function, helpers: Mapping[str, Function]) -> bool:
    """Whether a test, with the helpers and fixtures of its module, starts a run and reads its result."""
    waiting: list[Function] = [test]
    seen: set[str] = set()
    words: set[str] = set()
    while waiting:
        function = waiting.pop()
        seen.add(function.name)
        found = _words(function)
        words |= found
        waiting += [one for name, one in helpers.items() if name in found and name not in seen]
    return not RUNS.isdisjoint(words) and not RESULTS.isdisjoint(words)


def _words(function: Function) -> set[str]:
    """The names and attributes that a function uses, and the texts that it passes to a call."""
    words = {argument.arg for argument in function.args.args}
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.Attribute):
            words.add(f".{node.attr}")
        elif isinstance(node, ast.Call):
            words |= {f'"{one}"' for one in _texts(node.args)}
        elif isinstance(node, ast.List | ast.Tuple):
            words |= {f'"{one}"' for one in _texts(node.elts)}
    return words


def _texts(nodes: list[ast.expr]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _scope_marks(
    scope: Scope, name: str, inherited: list[Sighting], constants: Constants
) -> Iterator[tuple[Function, Mark]]:
    """The tests of a module or class with their marks; its own marks hold for each of its tests."""
    inherited = inherited + [
        seen for node in scope.body if _is_pytestmark(node) for seen in _sightings(node, name)
    ]
    for node in scope.body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            own = _on_decorators(node, name, constants)
            yield from _scope_marks(node, f"{name}::{node.name}", inherited + own, constants)
        elif isinstance(node, Function) and node.name.startswith("test"):
            own = _on_decorators(node, name, constants)
            yield from ((node, Mark(seen, f"{name}::{node.name}")) for seen in inherited + own)


def _constants(module: ast.Module, path: str) -> Constants:
    """The marks in module constants, such as a list of `pytest.param` that a test's decorator names."""
    return {
        name: list(_sightings(node, path)) for node in module.body for name in _assigned_names(node)
    }


def _is_pytestmark(node: ast.stmt) -> bool:
    return "pytestmark" in _assigned_names(node)


def _assigned_names(node: ast.stmt) -> list[str]:
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign)
        else []
    )
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _on_decorators(
    node: ast.ClassDef | Function, name: str, constants: Constants
) -> list[Sighting]:
    """The marks in the decorators, those of `pytest.param(..., marks=...)` and of named constants included."""
    parts = [part for decorator in node.decorator_list for part in ast.walk(decorator)]
    named = [
        seen for part in parts if isinstance(part, ast.Name) for seen in constants.get(part.id, [])
    ]
    return named + [
        seen for decorator in node.decorator_list for seen in _sightings(decorator, name)
    ]


def _sightings(tree: ast.AST, name: str) -> Iterator[Sighting]:
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func) in (
            "pytest.mark.demand",
            "mark.demand",
        ):
            if call.keywords or not call.args:
                raise TraceabilityError(
                    f"{name}: a demand mark takes one or more clause ids and nothing else"
                )
            yield from (
                Sighting(_literal(argument, name), argument.lineno) for argument in call.args
            )


def _literal(argument: ast.expr, name: str) -> str:
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value
    raise TraceabilityError(
        f"{name}: a demand mark takes plain strings, not {ast.unparse(argument)}"
    )


def tests_by_clause(demands: list[Demand], marks: list[Mark]) -> dict[str, list[Mark]]:
    """The tests of each clause: whole runs first, then those through the entry.

    A mark that names no clause is refused.
    """
    tests: dict[str, dict[str, Mark]] = {
        f"{demand.id}.{key}": {} for demand in demands for key in demand.clauses
    }
    unknown = sorted({f"{one.test} names {one.clause}" for one in marks if one.clause not in tests})
    if unknown:
        raise TraceabilityError("unknown demand clauses:\n  " + "\n  ".join(unknown))
    for mark in marks:
        tests[mark.clause][mark.test] = mark
    return {
        clause: sorted(found.values(), key=lambda one: (LEVELS.index(one.level), one.test))
        for clause, found in tests.items()
    }


def document(demands: list[Demand], tests: dict[str, list[Mark]]) -> str:
    """The whole text of TRACEABILITY.md."""
    levels = Counter(found[0].level if found else "open" for found in tests.values())
    share = round(100 * levels["whole run"] / len(tests))
    counts = (
        f"{levels['whole run']} of {len(tests)} clauses ({share} %) are shown by a whole run, "
        f"{levels['entry']} through the entry, {levels['rules only']} rules only, "
        f"{levels['open']} open.\n"
    )
    return "\n".join([HEAD, counts, *(_section(demand, tests) for demand in demands)])


def _section(demand: Demand, tests: dict[str, list[Mark]]) -> str:
    rows = [
        f"| {demand.id}.{key} | {_cell(text)} | {_tests_cell(tests[f'{demand.id}.{key}'])} |"
        for key, text in demand.clauses.items()
    ]
    return "\n".join(
        [
            f"### {demand.id} {demand.title}\n",
            "| clause | text | tests |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _tests_cell(found: list[Mark]) -> str:
    if not found:
        return "open"
    named = [f"`{one.test}`" for one in found[:SHOWN_TESTS]]
    more = [f"+{len(found) - SHOWN_TESTS} more"] if len(found) > SHOWN_TESTS else []
    return f"{found[0].level}: " + ", ".join(named + more)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _natural(id_: str) -> tuple[int, int]:
    return SECTIONS.index(id_[0]), int(id_[1:])


def made_from(root: Path) -> str:
    """The document that the demands and tests under `root` ask for."""
    demands = demands_in((root / "docs" / "demands.toml").read_text(encoding="utf-8"))
    marks: list[Mark] = []
    for path in sorted((root / "tests").rglob("*.py")):
        marks += marks_in(path.read_bytes(), path.relative_to(root).as_posix())
    return document(demands, tests_by_clause(demands, marks))


def refuse_stale(target: Path, text: str) -> None:
    """Raises unless the file on disk is exactly what would be written."""
    on_disk = target.read_bytes() if target.exists() else b""
    if on_disk != text.encode():
        raise TraceabilityError(f"docs/{target.name} is stale: run `make traceability`")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; exit 1 if the document is stale or wrong",
    )
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(__file__).resolve().parents[1],
        help="the project's folder",
    )
    options = parser.parse_args(arguments)
    target = options.root / "docs" / "TRACEABILITY.md"
    try:
        text = made_from(options.root)
        if options.check:
            refuse_stale(target, text)
        else:
            target.write_bytes(text.encode())
    except (TraceabilityError, OSError, UnicodeError) as error:
        print(f"traceability: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
