"""Write Python statements out plainly, so that a pattern also finds aliases and composed texts.

`from sys import modules as m; "py" + "test" in m` becomes `'pytest' in sys.modules`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

_MAX_SOURCE_CHARS = 1_000_000
_MAX_TEXT_CHARS = 200
_TEXT_METHODS = ("join", "replace", "upper", "lower", "title", "strip", "swapcase")
_REVERSED = re.compile(r"'([^'\\]*)'\[::-1\]")
_PLAIN_FORMS = tuple(
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r"(?<=[\w.])' \+ '(?=[\w.])", ""),
        (r"\bvars\(([\w.]+)\)\['(\w+)'\]", r"\1.\2"),
        (r"\.__dict__\['(\w+)'\]", r".\1"),
        (r"\b(?:__import__|(?:importlib\.)?import_module)\('([\w.]+)'\)", r"\1"),
        (r"\bgetattr\(([\w.]+), '(\w+)'(?:, [\w.]+)?\)", r"\1.\2"),
    )
)
_Aliases = dict[str, ast.expr]


def list_plain_statements(text: str, lines: Collection[int]) -> Iterator[tuple[range, str]]:
    """Yield the statements that are on some of these lines, with their lines.

    A compound statement is yielded without its blocks.
    """
    try:
        tree = ast.parse(text[:_MAX_SOURCE_CHARS])
        statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
        # Replaced nodes have no lines
        spans = [_find_lines(node) for node in statements]
        _Plain(_list_aliases(tree)).visit(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return

    for span, node in zip(spans, statements, strict=True):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or not any(number in lines for number in span):
            continue
        try:
            plain = _write_plainly(node)
        except (ValueError, RecursionError):
            # A format string cannot have every alias written out
            continue
        yield span, plain


def _write_plainly(node: ast.stmt) -> str:
    if not hasattr(node, "body"):
        return _simplify(ast.unparse(node))

    decorators = getattr(node, "decorator_list", [])
    parts = [f"@{ast.unparse(one)}" for one in decorators]
    for one in ast.iter_child_nodes(node):
        is_block = isinstance(one, ast.stmt | ast.ExceptHandler | ast.match_case)
        if not is_block and one not in decorators:
            parts.append(ast.unparse(one))
    return _simplify(" ".join(parts))


def _find_lines(node: ast.stmt) -> range:
    """Return the lines of a statement, without those of its blocks."""
    first = node.lineno
    for decorator in getattr(node, "decorator_list", ()):
        first = min(first, decorator.lineno)

    block = getattr(node, "body", ())
    if block:
        return range(first, max(block[0].lineno, node.lineno + 1))
    return range(first, (node.end_lineno or node.lineno) + 1)


def _list_aliases(tree: ast.Module) -> _Aliases:
    """Return what the imported names and the constants of a module stand for."""
    aliases = _list_constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.asname:
                    aliases[one.asname] = ast.Name(one.name)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                name = one.asname or one.name
                aliases[name] = ast.Name(f"{node.module}.{one.name}")
    return aliases


def _list_constants(tree: ast.Module) -> _Aliases:
    constants: _Aliases = {}
    for statement in tree.body:
        if not isinstance(statement, ast.Assign):
            continue
        target = statement.targets[0]
        value = statement.value
        if not isinstance(target, ast.Name):
            continue
        if isinstance(value, ast.Attribute):
            constants[target.id] = ast.Name(ast.unparse(value))
        elif isinstance(value, ast.Constant | ast.UnaryOp):
            constants[target.id] = value
    return constants


class _Plain(ast.NodeTransformer):
    """Replaces aliases by what they stand for, and texts that are composed by their value."""

    def __init__(self, aliases: _Aliases) -> None:
        self._aliases = aliases

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load):
            return self._aliases.get(node.id, node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        method = node.func
        if not isinstance(method, ast.Attribute) or method.attr not in _TEXT_METHODS:
            return node

        try:
            text, *arguments = [
                ast.literal_eval(_simplify(ast.unparse(one))) for one in (method.value, *node.args)
            ]
            composed = getattr(text, method.attr)(*arguments)
        except (ValueError, TypeError, AttributeError, SyntaxError):
            return node
        # Each step could multiply the length
        if len(composed) > _MAX_TEXT_CHARS:
            return node
        return ast.Constant(composed)


def _simplify(text: str) -> str:
    """Join texts, turn them around, and write attributes that are named by a text as attributes."""
    text = _REVERSED.sub(lambda found: f"'{found[1][::-1]}'", text)
    for pattern, plain in _PLAIN_FORMS:
        text = pattern.sub(plain, text)
    return text
