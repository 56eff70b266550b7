"""Bind requirements to tests and code, and hash the bound text.

A test belongs to the requirements whose ids are in its text or its name. Code belongs to the
requirements whose tests name it: a function or class of Python, a file in other languages.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import NamedTuple

import msgspec

from phasegate.core.specs.gherkin import GHERKIN, split_gherkin
from phasegate.core.specs.spec_file import (
    REQUIREMENT_ID,
    REVISION_CHARS,
    Binding,
    CapabilitySpec,
    CurrentRequirement,
    Scenario,
)
from phasegate.core.test_strength.blocks import (
    JAVASCRIPT,
    MAX_TEXT_CHARS,
    blank_comments,
    split_tests,
)

_ID = re.compile(rf"(?<![\w-]){REQUIREMENT_ID}(?![\w-])")
_SNAKE_ID = re.compile(r"(?<![a-z0-9])((?:fr|nfr)(?:_[a-z0-9]{1,24}){0,6}_[0-9]{1,6})(?![a-z0-9])")
# What begins a line that is a comment. In other languages such a line may be code: `#define`, `*p`
_HASH_COMMENTS = (".ex", ".exs", GHERKIN, ".pl", ".py", ".r", ".rb", ".sh", ".toml", ".yml")
_DASH_COMMENTS = (".hs", ".lua", ".sql")
_WORD = re.compile(r"\w+")
# A name of one or two letters says nothing about what a test uses
_MIN_NAME_CHARS = 3


class NamedTest(NamedTuple):
    """A test that names a requirement."""

    requirement: str
    target: str
    text: str


def find_named_tests(path: str, text: str) -> Iterator[NamedTest]:
    """Yield the tests of a file with each requirement that they name.

    An id outside of any test stands for the whole file.
    """
    inside = set()
    for name, source in _list_tests(path, text):
        for id_ in sorted(find_ids(f"{name}\n{source}")):
            inside.add(id_)
            yield NamedTest(id_, f"{path}::{name}", source)

    for id_ in sorted(find_ids(text) - inside):
        yield NamedTest(id_, path, text)


def _list_tests(path: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the source of each test, or of each scenario of a Gherkin file."""
    if path.endswith(GHERKIN):
        yield from split_gherkin(text)
    else:
        for block in split_tests(path, text):
            name = block.name.replace(".", "::") if path.endswith(".py") else block.name
            yield name, block.text


def find_ids(text: str) -> set[str]:
    """Return all ids of requirements in a text, including those in names: fr_auth_001."""
    snake = (found.upper().replace("_", "-") for found in _SNAKE_ID.findall(text.lower()))
    return {*_ID.findall(text), *snake}


def extract_bound_text(target: str, text: str) -> str | None:
    """Return the part of a file that a binding names, or None if it has none."""
    path, _, name = target.partition("::")
    if not name:
        return text
    if path.endswith(".py"):
        return dict(_find_python_symbols(text)).get(name)
    return next((text for found, text in _list_tests(path, text) if found == name), None)


def hash_bound_text(text: str, path: str = "") -> str:
    """Return the hash of code: blank lines, comments and the layout of Python do not count."""
    content = _list_syntax(text) if path.endswith(".py") else ""
    content = content or _strip_comments(text, path)
    return sha256(content.encode(errors="replace")).hexdigest()[:REVISION_CHARS]


def _list_syntax(text: str) -> str:
    """Return the syntax of Python code in a form that every version of Python gives."""
    try:
        tree = ast.parse(textwrap.dedent(text[:MAX_TEXT_CHARS]))
        return repr(_simplify_node(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""


def _simplify_node(node: object) -> object:
    """Return a node as plain lists, without positions and empty fields."""
    if isinstance(node, ast.AST):
        fields = [[name, _simplify_node(value)] for name, value in ast.iter_fields(node)]
        # Newer versions add fields, which are empty in code that older ones read too
        filled = [field for field in fields if field[1] not in ("None", [])]
        return [type(node).__name__, filled]
    if isinstance(node, list):
        return [_simplify_node(one) for one in node]
    return repr(node)


def _strip_comments(text: str, path: str) -> str:
    mark = "//"
    if path.endswith(_HASH_COMMENTS):
        mark = "#"
    elif path.endswith(_DASH_COMMENTS):
        mark = "--"
    elif path.endswith(JAVASCRIPT):
        text = blank_comments(text)

    lines = [line.rstrip() for line in text.splitlines()]
    code = [line for line in lines if line and not line.lstrip().startswith(mark)]
    indent = min((len(line) - len(line.lstrip()) for line in code), default=0)
    return "\n".join(line[indent:] for line in code)


def hash_target(target: str, files: Mapping[str, str]) -> str:
    """Return the hash of the text that a binding names in a tree; empty if it is not there."""
    path = target.partition("::")[0]
    text = files.get(path)
    part = None if text is None else extract_bound_text(target, text)
    if part is None:
        return ""
    return hash_bound_text(part, path)


def find_named_code(test: str, path: str, before: str, after: str) -> tuple[str, ...]:
    """Return the changed code of a file that a test names."""
    words = set(_WORD.findall(test))
    if not path.endswith(".py"):
        stem = path.rpartition("/")[2].partition(".")[0]
        return (path,) if stem in words else ()

    old = dict(_find_python_symbols(before))
    return tuple(
        f"{path}::{name}"
        for name, text in _find_python_symbols(after)
        if old.get(name) != text and _is_named(name, words)
    )


def list_public_symbols(path: str, text: str) -> tuple[str, ...]:
    """Return the public functions and classes of a file; of other languages, the file."""
    if not path.endswith(".py"):
        return (path,)

    names = []
    for name, _ in _find_python_symbols(text):
        if not name.startswith("_") and "::_" not in name:
            names.append(f"{path}::{name}")
    return tuple(names)


def _is_named(name: str, words: set[str]) -> bool:
    """Return whether a test uses a function, a method or a class by its own name."""
    owner, _, last = name.rpartition("::")
    if last.startswith("__"):
        return False
    return last in words and len(last) >= _MIN_NAME_CHARS and (not owner or owner in words)


def _find_python_symbols(text: str) -> Iterator[tuple[str, str]]:
    """Yield functions, classes and methods with their source, each name once.

    A name that is defined twice, such as a property with its setter, has both sources. A class is
    its head and its own statements.
    """
    if len(text) > MAX_TEXT_CHARS:
        return
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return

    found: dict[str, list[str]] = {}
    for name, source in _walk_python(tree.body, "", text.splitlines()):
        found.setdefault(name, []).append(source)

    for name, sources in found.items():
        yield name, "\n".join(sources)


def _walk_python(
    body: Iterable[ast.AST], prefix: str, lines: list[str]
) -> Iterator[tuple[str, str]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}", _source(node, lines)
        elif isinstance(node, ast.ClassDef):
            functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            own = [one for one in node.body if not isinstance(one, functions)]
            head = [_source_of_head(node, lines), *(_source(one, lines) for one in own)]
            yield f"{prefix}{node.name}", "\n".join(head)
            yield from _walk_python(node.body, f"{prefix}{node.name}::", lines)
        # Definitions that depend on a version or an import
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            yield from _walk_python(ast.iter_child_nodes(node), prefix, lines)


def _source_of_head(node: ast.ClassDef, lines: list[str]) -> str:
    """Return the decorators, the name and the bases of a class."""
    end = max(_first_line(node.body[0]) - 1, node.lineno)
    return "\n".join(lines[_first_line(node) - 1 : end])


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def _source(node: ast.stmt, lines: list[str]) -> str:
    return "\n".join(lines[_first_line(node) - 1 : node.end_lineno])


def add_bindings(
    spec: CapabilitySpec, found: Mapping[str, Iterable[tuple[str, str]]]
) -> CapabilitySpec:
    """Add bindings (kind, target) to requirements that do not have them yet."""

    def add(requirement: CurrentRequirement) -> CurrentRequirement:
        known = {(one.kind, one.target) for one in requirement.all_bindings}
        bindings = [*requirement.bindings]
        for kind, target in dict.fromkeys(found.get(requirement.id, ())):
            if (kind, target) not in known:
                bindings.append(Binding(kind, target))

        return msgspec.structs.replace(requirement, bindings=tuple(bindings))

    return _map_requirements(spec, add)


def set_accepted(spec: CapabilitySpec, accepted: Mapping[tuple[str, str], str]) -> CapabilitySpec:
    """Set the accepted hash of bindings, by requirement and target.

    An empty hash removes the binding: what it names is gone.
    """

    def update(id_: str, bindings: Iterable[Binding]) -> tuple[Binding, ...]:
        updated = []
        for one in bindings:
            new = accepted.get((id_, one.target), one.accepted)
            is_gone = (id_, one.target) in accepted and not new
            if not is_gone:
                updated.append(msgspec.structs.replace(one, accepted=new))
        return tuple(updated)

    def change(requirement: CurrentRequirement) -> CurrentRequirement:
        scenarios: tuple[Scenario, ...] = tuple(
            msgspec.structs.replace(one, bindings=update(requirement.id, one.bindings))
            for one in requirement.scenarios
        )
        return msgspec.structs.replace(
            requirement,
            bindings=update(requirement.id, requirement.bindings),
            scenarios=scenarios,
        )

    return _map_requirements(spec, change)


def _map_requirements(
    spec: CapabilitySpec, change: Callable[[CurrentRequirement], CurrentRequirement]
) -> CapabilitySpec:
    blocks = (one if isinstance(one, str) else change(one) for one in spec.blocks)
    return CapabilitySpec(tuple(blocks))
