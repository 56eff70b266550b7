"""Measure how readable the source is, and fail when it gets worse.

Usage: python tools/readability.py [--root DIR] [--list words|docstrings|records|modules]

Counts AST nodes, nodes per line, conditional expressions, records that are built by position, docstrings that do not
begin with a verb, and words that the project gave up (the table WORDS). `[tool.readability]` in pyproject.toml has a
limit for each count. A count of words may only fall: when it does, the limit must be lowered with it.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

# What to write instead. A word counts as a whole word, also as a part of an identifier.
WORDS = {
    r"told|telling": "notify, report",
    r"errands?": "request",
    r"anew": "again, regenerated",
    r"whoever": "the caller, another process",
    r"meanwhile": "in the meantime, concurrently",
    r"mend(?:s|ed|ing)?": "fix",
    r"papers?": "document",
    r"heard": "received",
    r"goes on|going on|went on": "continues",
    r"of ours": "our",
    r"(?:take|takes|taken|took) in": "apply, import",
    r"(?:take|takes|taken|took) over": "collect, commit, merge",
    r"put(?:s|ting)? (?:away|down)": "clean up; write",
    r"less and less": "with exponential back-off",
    r"again and again": "in a loop",
    r"a stranger|strangers?": "an unknown process",
    r"begun": "started",
    r"persons?|somebody|anybody": "user, operator, reviewer",
    r"warden": "supervisor",
    r"caged?|cages": "sandbox",
    r"doors?": "interface",
    r"workshops?": "adapter",
    r"crew": "worker pool",
    r"desk": "context",
    r"way[ _]out": "egress proxy",
    r"look(?:s|ed)? (?:again|once)": "poll",
}
GIVEN_UP = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(WORDS)})(?![A-Za-z])", re.IGNORECASE)

# A docstring of a function begins with a verb; these words show that it does not.
NOT_VERBS = frozenset(
    [
        "the",
        "a",
        "an",
        "what",
        "whether",
        "how",
        "which",
        "where",
        "who",
        "whose",
        "when",
        "why",
        "all",
        "one",
        "each",
        "every",
        "some",
        "no",
        "nothing",
        "this",
        "these",
        "that",
        "those",
        "it",
        "its",
        "they",
        "our",
        "of",
        "in",
        "on",
        "at",
        "by",
        "from",
        "for",
        "with",
        "as",
        "if",
        "and",
        "or",
        "not",
        "two",
        "what's",
    ]
)
LARGE_RECORD = 5
SMALLEST_MODULE_LINES = 20


class Place(NamedTuple):
    """A line that a count is about."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


class ModuleSize(NamedTuple):
    """The size of one source file."""

    path: str
    nodes: int
    lines: int

    @property
    def density(self) -> float:
        return self.nodes / max(self.lines, 1)


class Measurement(NamedTuple):
    """Everything that is measured of a source tree."""

    modules: tuple[ModuleSize, ...]
    conditional_expressions: int
    nested_conditional_expressions: tuple[Place, ...]
    positional_records: tuple[Place, ...]
    noun_docstrings: tuple[Place, ...]
    given_up_words: tuple[Place, ...]

    @property
    def nodes(self) -> int:
        return sum(module.nodes for module in self.modules)

    @property
    def lines(self) -> int:
        return sum(module.lines for module in self.modules)


class Limits(NamedTuple):
    """`[tool.readability]` of pyproject.toml.

    `stored_names` lists, by file, words that are part of stored or printed data and must stay.
    """

    max_nodes: int
    max_nodes_per_line: float
    max_module_nodes_per_line: float
    max_conditional_expressions_per_1000_lines: float
    nested_conditional_expressions: int
    positional_records: int
    noun_docstrings: int
    given_up_words: int
    stored_names: dict[str, list[str]]


def read_limits(root: Path) -> Limits:
    tables = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return Limits(**{"stored_names": {}, **tables["tool"]["readability"]})


def measure(root: Path, stored_names: dict[str, list[str]]) -> Measurement:
    """Measure `src` for everything, and the documentation for words."""
    sources = {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((root / "src").rglob("*.py"))
    }
    trees = {path: ast.parse(text) for path, text in sources.items()}
    fields = _record_fields(trees.values())

    modules = []
    conditional_expressions = 0
    nested: list[Place] = []
    positional: list[Place] = []
    docstrings: list[Place] = []
    words: list[Place] = []
    for path, tree in trees.items():
        nodes = list(ast.walk(tree))
        modules.append(ModuleSize(path, len(nodes), sources[path].count("\n")))
        conditional_expressions += sum(isinstance(node, ast.IfExp) for node in nodes)
        nested += _find_nested(path, nodes)
        positional += _find_positional(path, nodes, fields)
        docstrings += _find_noun_docstrings(path, nodes)
        words += find_words(path, sources[path], stored_names.get(path, []))

    for document in _documents(root):
        path = document.relative_to(root).as_posix()
        words += find_words(path, document.read_text(encoding="utf-8"), stored_names.get(path, []))

    return Measurement(
        modules=tuple(modules),
        conditional_expressions=conditional_expressions,
        nested_conditional_expressions=tuple(nested),
        positional_records=tuple(positional),
        noun_docstrings=tuple(docstrings),
        given_up_words=tuple(words),
    )


def _documents(root: Path) -> Iterator[Path]:
    for folder in (root, root / "docs"):
        pattern = "*.md" if folder == root else "**/*.md"
        for path in sorted(folder.glob(pattern)):
            if path.name != "TRACEABILITY.md":
                yield path


def find_words(path: str, text: str, stored_names: Iterable[str]) -> Iterator[Place]:
    """Yield every use of a word that was given up, except in names that are stored."""
    for number, line in enumerate(text.splitlines(), start=1):
        for name in stored_names:
            line = re.sub(rf"(?<![A-Za-z]){re.escape(name)}(?![A-Za-z])", "", line)  # noqa: PLW2901
        for match in GIVEN_UP.finditer(line):
            yield Place(path, number, match.group())


def _record_fields(trees: Iterable[ast.Module]) -> dict[str, int]:
    """Return the number of fields of each record type, by class name."""
    fields = {}
    for tree in trees:
        for node in tree.body:
            if not isinstance(node, ast.ClassDef):
                continue
            bases = {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}
            if bases & {"NamedTuple", "Struct"}:
                fields[node.name] = sum(isinstance(part, ast.AnnAssign) for part in node.body)
    return fields


def _find_nested(path: str, nodes: Iterable[ast.AST]) -> Iterator[Place]:
    for node in nodes:
        if isinstance(node, ast.IfExp):
            inner = (part for part in ast.walk(node) if part is not node)
            if any(isinstance(part, ast.IfExp) for part in inner):
                yield Place(path, node.lineno, "nested conditional expression")


def _find_positional(
    path: str, nodes: Iterable[ast.AST], fields: dict[str, int]
) -> Iterator[Place]:
    for node in nodes:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        plain = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
        if fields.get(node.func.id, 0) >= LARGE_RECORD and len(plain) >= LARGE_RECORD:
            yield Place(path, node.lineno, f"{node.func.id} is built by position")


def _find_noun_docstrings(path: str, nodes: Iterable[ast.AST]) -> Iterator[Place]:
    for node in nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if any("property" in ast.unparse(decorator) for decorator in node.decorator_list):
            continue
        docstring = ast.get_docstring(node)
        if docstring and docstring.split()[0].lower().rstrip(",:;") in NOT_VERBS:
            yield Place(path, node.lineno, docstring.splitlines()[0])


def complaints(measured: Measurement, limits: Limits) -> Iterator[str]:
    """Yield what is over its limit, and limits that can be lowered."""
    if measured.nodes > limits.max_nodes:
        yield f"src has {measured.nodes} AST nodes, {limits.max_nodes} are allowed: delete before you add"

    density = measured.nodes / measured.lines
    if density > limits.max_nodes_per_line:
        yield f"src has {density:.2f} AST nodes a line, {limits.max_nodes_per_line} are allowed"

    for module in measured.modules:
        if (
            module.lines >= SMALLEST_MODULE_LINES
            and module.density > limits.max_module_nodes_per_line
        ):
            yield (
                f"{module.path} has {module.density:.2f} AST nodes a line, "
                f"{limits.max_module_nodes_per_line} are allowed: one thought a line"
            )

    rate = 1000 * measured.conditional_expressions / measured.lines
    allowed = limits.max_conditional_expressions_per_1000_lines
    if rate > allowed:
        yield f"src has {rate:.1f} conditional expressions in 1000 lines, {allowed} are allowed"

    counted = {
        "nested_conditional_expressions": measured.nested_conditional_expressions,
        "positional_records": measured.positional_records,
        "noun_docstrings": measured.noun_docstrings,
        "given_up_words": measured.given_up_words,
    }
    for name, places in counted.items():
        limit = getattr(limits, name)
        if len(places) > limit:
            shown = "\n  ".join(map(str, places[:20]))
            yield f"{name}: {len(places)}, {limit} are allowed (--list {name} shows all):\n  {shown}"
        elif len(places) < limit:
            yield f"{name}: {len(places)}: lower the limit of {limit} in pyproject.toml, so that it stays so"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument(
        "--list",
        choices=[
            "nested_conditional_expressions",
            "positional_records",
            "noun_docstrings",
            "given_up_words",
        ],
    )
    options = parser.parse_args(arguments)

    limits = read_limits(options.root)
    measured = measure(options.root, limits.stored_names)
    if options.list:
        print(*getattr(measured, options.list), sep="\n")
        return 0

    found = list(complaints(measured, limits))
    for complaint in found:
        print(complaint, file=sys.stderr)
    rate = 1000 * measured.conditional_expressions / measured.lines
    print(
        f"src: {measured.nodes} AST nodes in {measured.lines} lines, "
        f"{measured.nodes / measured.lines:.2f} a line, {rate:.1f} conditional expressions per 1000 lines"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
