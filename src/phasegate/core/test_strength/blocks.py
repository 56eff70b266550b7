"""Split test files into tests, with their assertions: Python by its syntax, JavaScript by calls."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

import msgspec

from phasegate.core.test_strength.python_assertions import list_assertions

MAX_TEXT_CHARS = 1_000_000
JAVASCRIPT = (".js", ".cjs", ".mjs", ".jsx", ".ts", ".cts", ".mts", ".tsx")
_SKIP_PYTHON = re.compile(r"\b(?:skip|skipif|skipIf|skipUnless|xfail|expectedFailure|skipTest)\b")
_JS_TEST = re.compile(
    r"(?<![\w.$])(?P<call>(?:it|test|specify)(?:\.\w+)*|x(?:it|test)|fit)"
    r"\(\s*(?P<quote>['\"`])(?P<title>(?:(?!(?P=quote))[^\n\\]|\\.){0,500})(?P=quote)"
)
_JS_ASSERTION = re.compile(
    r"(?<![\w$])(?:expect|assert|should|t|tap|chai)(?:\.\w+)*\s*\(|\.should\b", re.M
)
# An assertion about a constant, or with an alternative that is always true
_JS_ALWAYS_TRUE = re.compile(
    r"^(?:expect|assert)(?:\.(?!assertions)\w+)*\s*\(\s*(?:true|1|!0|'[^']+'|\"[^\"]+\")\s*[,)](?!.*(?:false|fail))"
    r"|\|\|\s*(?:true|1|!0)\s*[,)]"
)
_JS_SKIP = re.compile(r"\.(?:skip|todo|failing)\b|^x(?:it|test)$")


class TestBlock(msgspec.Struct, frozen=True):
    """One test in the source of a test file."""

    # Prevents pytest from collecting this class
    __test__ = False

    name: str
    line: int
    text: str
    # The body without name, comments and layout: equal bodies are the same test
    body: str
    assertions: tuple[str, ...]
    is_skipped: bool = False
    # Assertions that are not evaluated in every run
    conditional: tuple[str, ...] = ()


def split_tests(path: str, text: str) -> tuple[TestBlock, ...]:
    """Return the tests of a file; none for other languages and files that cannot be parsed."""
    if len(text) > MAX_TEXT_CHARS:
        return ()
    if path.endswith(".py"):
        return tuple(_split_python(text))
    if path.endswith(JAVASCRIPT):
        return tuple(_split_javascript(text))
    return ()


# An array or object in an array
_JS_ROW = re.compile(r"(?<=[\[,])\s*(\[[^\[\]]*\]|\{[^{}]*\})\s*(?=[,\]])")


def count_cases(path: str, text: str) -> Counter[str]:
    """Count the rows of the tables of cases in a test file."""
    if path.endswith(".py"):
        return Counter(_list_rows([*parse_python(text)]))
    if path.endswith(JAVASCRIPT):
        plain = re.sub(r"\s+", " ", blank_comments(text[:MAX_TEXT_CHARS]))
        return Counter(_JS_ROW.findall(plain))
    return Counter()


def _list_rows(nodes: Collection[ast.AST]) -> Iterator[str]:
    """Yield the rows of the tables that a file parametrizes tests with, or loops over."""
    tables = [*_list_iterated(nodes)]
    used = {name.id for table in tables for name in ast.walk(table) if isinstance(name, ast.Name)}

    for node in nodes:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in used:
            tables.append(node.value)

    for table in tables:
        rows: list[ast.expr] = []
        if isinstance(table, ast.List | ast.Tuple | ast.Set):
            rows = table.elts
        elif isinstance(table, ast.Dict):
            # A key that is missing unpacks another table
            pairs = zip(table.keys, table.values, strict=True)
            rows = [ast.Tuple([key, value]) for key, value in pairs if key]

        # A row of names only is no case
        for row in rows:
            if any(isinstance(node, ast.Constant) for node in ast.walk(row)):
                yield ast.unparse(row)


def _list_iterated(nodes: Collection[ast.AST]) -> Iterator[ast.expr]:
    """Yield what a file loops over and parametrizes with."""
    for node in nodes:
        if isinstance(node, ast.For | ast.comprehension):
            yield node.iter
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("parametrize"):
            yield from node.args[1:2]


def parse_python(text: str) -> Iterable[ast.AST]:
    """Return all nodes of a Python file; none if it cannot be parsed."""
    try:
        return ast.walk(ast.parse(text[:MAX_TEXT_CHARS]))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


def _split_python(text: str) -> Iterator[TestBlock]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return

    yield from _python_tests(tree.body, "", text, is_skipped=False)


def _python_tests(
    body: Iterable[ast.stmt], prefix: str, text: str, *, is_skipped: bool
) -> Iterator[TestBlock]:
    """Yield the tests of a module or class, with nested classes."""
    lines = text.splitlines()
    for node in body:
        if isinstance(node, ast.ClassDef):
            marked = any(_is_skip_decorator(decorator) for decorator in node.decorator_list)
            yield from _python_tests(
                node.body, f"{prefix}{node.name}.", text, is_skipped=is_skipped or marked
            )
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test"
        ):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            source = "\n".join(lines[first - 1 : node.end_lineno])
            assertions = list_assertions(node)
            yield TestBlock(
                name=f"{prefix}{node.name}",
                line=node.lineno,
                text=source,
                body="\n".join(ast.dump(statement) for statement in _without_docstring(node)),
                assertions=tuple(one.text for one in assertions),
                is_skipped=is_skipped or bool(_SKIP_PYTHON.search(source)),
                conditional=tuple(one.text for one in assertions if one.is_conditional),
            )


def _is_skip_decorator(node: ast.expr) -> bool:
    return bool(_SKIP_PYTHON.search(ast.unparse(node)))


def _without_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return node.body[1:]
    return node.body


def _split_javascript(text: str) -> Iterator[TestBlock]:
    """Yield the tests of a JavaScript file."""
    for found in _JS_TEST.finditer(blank_comments(text)):
        end = find_closing(text, text.index("(", found.start()))
        source = text[found.start() : end]
        body = re.sub(r"\s+", " ", blank_comments(source[found.end() - found.start() :]))
        yield TestBlock(
            name=found["title"],
            line=text.count("\n", 0, found.start()) + 1,
            text=source,
            body=body.strip(),
            assertions=tuple(_javascript_assertions(source)),
            is_skipped=bool(_JS_SKIP.search(found["call"])),
        )


def _javascript_assertions(source: str) -> Iterator[str]:
    plain = blank_comments(source)
    end = 0
    for found in _JS_ASSERTION.finditer(plain):
        if found.start() >= end:
            line_end = plain.find("\n", found.end())
            end = max(found.end(), line_end if line_end > 0 else len(plain))
            text = re.sub(r"\s+", " ", source[found.start() : end]).strip()
            if not _JS_ALWAYS_TRUE.search(text):
                yield text


_JS_TOKEN = re.compile(
    r"//[^\n]*|/\*.*?(?:\*/|\Z)|'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|`(?:[^`\\]|\\.)*`", re.S
)


def blank_comments(text: str) -> str:
    """Replace comments by blanks of the same length; strings stay."""
    return _JS_TOKEN.sub(
        lambda token: re.sub(r"[^\n]", " ", token[0]) if token[0].startswith("/") else token[0],
        text,
    )


def blank_strings(text: str) -> str:
    """Replace comments and strings by blanks of the same length."""
    return _JS_TOKEN.sub(lambda token: re.sub(r"[^\n]", " ", token[0]), text)


def find_closing(text: str, start: int) -> int:
    """Return the position after the bracket that closes the one at `start`."""
    depth = 0
    plain = blank_strings(text[start:])
    for found in re.finditer(r"[()\[\]{}]", plain):
        depth += 1 if found[0] in "([{" else -1
        if depth == 0:
            return start + found.end()
    return len(text)


_JS_FUNCTION = re.compile(
    r"(?:\bfunction\s*\*?\s*|[.\s]|^)(?P<name>[\w$]+)\s*"
    r"(?:[=:]\s*(?:async\s*)?(?:function\b[^(\n]*)?(?=\([^)\n]*\)|\w+\s*=>)|(?=\([^)\n]*\)[^;{\n]*\{))",
    re.M,
)


def list_functions(path: str, text: str) -> Iterator[tuple[str, range]]:
    """Yield the functions of a source file with their lines."""
    if path.endswith(".py"):
        for node in parse_python(text):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name, range(node.lineno, (node.end_lineno or node.lineno) + 1)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                yield ast.unparse(node.targets[0]), range(node.lineno, node.lineno + 1)
    elif path.endswith(JAVASCRIPT):
        for found in _JS_FUNCTION.finditer(text):
            first = text.count("\n", 0, found.start("name")) + 1
            body = text.find("{", found.end())
            line_end = text.find("\n", found.end())
            last = first
            if body >= 0 and (body < line_end or line_end < 0):
                last = text.count("\n", 0, find_closing(text, body)) + 1
            yield found["name"], range(first, last + 1)
