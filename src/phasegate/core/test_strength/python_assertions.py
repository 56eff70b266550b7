"""Find the assertions that a Python test can reach."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
_ASSERTION_CALL = re.compile(
    r"(?:^|\.)(?:assert\w*|raises|warns|deprecated_call|fail|expect|should|check|verify\w*)$"
)
_COMPARING_CALL = re.compile(r"\.assert(?:Equal|Is|\w+Equal)$")
_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Assertion(NamedTuple):
    """An assertion of a test. A conditional one is not evaluated in every run."""

    text: str
    is_conditional: bool = False


def list_assertions(function: Function) -> list[Assertion]:
    """Return the assertions that a run of the test evaluates.

    An assertion does not count if it is always true, follows a return, or is in a function that is
    never called. A runner does not execute the body of a generator.
    """
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _walk_scope(function)):
        return []

    # Names that the function reads: what is not among them is never called
    used = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    is_async = isinstance(function, ast.AsyncFunctionDef)
    return [*_list_reached(function.body, used, is_conditional=is_async)]


def _walk_scope(function: Function) -> Iterator[ast.AST]:
    """Yield a function's nodes, without the nodes of nested functions."""
    pending: list[ast.AST] = [*function.body]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, _SCOPES):
            pending += ast.iter_child_nodes(node)


def _list_reached(
    body: Sequence[ast.stmt], used: Collection[str], *, is_conditional: bool
) -> Iterator[Assertion]:
    """Yield the assertions of a block up to the statement that leaves it."""
    for statement in body:
        if _is_unused_function(statement, used):
            continue
        for text in _list_own(statement):
            yield Assertion(text, is_conditional)

        # Without a condition, a block runs every time
        is_branch = isinstance(statement, ast.If | ast.Match) and not _is_constant(statement)
        for block in _list_blocks(statement):
            yield from _list_reached(block, used, is_conditional=is_conditional or is_branch)
            if is_branch and any(isinstance(one, _LEAVING) for one in block):
                is_conditional = True
        if isinstance(statement, _LEAVING):
            return


def _is_unused_function(statement: ast.stmt, used: Collection[str]) -> bool:
    """Return True for a function or lambda whose name nothing uses."""
    if isinstance(statement, Function):
        return statement.name not in used
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Lambda):
        return not any(isinstance(one, ast.Name) and one.id in used for one in statement.targets)
    return False


def _is_constant(statement: ast.stmt) -> bool:
    """Return True if the condition of a statement is a constant."""
    return isinstance(getattr(statement, "test", None), ast.Constant)


def _list_blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """Return the blocks of a statement that can run."""
    if isinstance(statement, ast.If | ast.While) and isinstance(statement.test, ast.Constant):
        return [statement.body if statement.test.value else statement.orelse]

    # Loops, with, try and match
    blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
    parts = [*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())]
    return [*blocks, *(part.body for part in parts)]


def _list_own(statement: ast.stmt) -> Iterator[str]:
    """Yield a statement's own assertions, without the assertions in its blocks."""
    if isinstance(statement, ast.Assert):
        if not _is_always_true(statement.test):
            yield ast.unparse(statement)
        return

    own = [
        node
        for node in ast.iter_child_nodes(statement)
        if not isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case)
    ]
    for expression in own:
        for node in ast.walk(expression):
            if isinstance(node, ast.Call) and _is_assertion(node):
                yield ast.unparse(node)


def _is_assertion(call: ast.Call) -> bool:
    """Return True for a call that can fail a test."""
    called = ast.unparse(call.func)
    if not _ASSERTION_CALL.search(called):
        return False

    # Constants say nothing about the code
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    if arguments and all(isinstance(value, ast.Constant) for value in arguments):
        return False

    if called.endswith(".assertTrue"):
        return not _is_always_true(call.args[0]) if call.args else True
    return not (_COMPARING_CALL.search(called) and _are_equal(call.args[:2]))


def _is_always_true(test: ast.expr) -> bool:
    """Return True for a condition that does not depend on the code."""
    if isinstance(test, ast.Constant):
        return True
    if isinstance(test, ast.Tuple):
        return bool(test.elts)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return any(_is_always_true(value) for value in test.values)
    if isinstance(test, ast.Compare) and isinstance(
        test.ops[0], ast.Eq | ast.Is | ast.LtE | ast.GtE
    ):
        return _are_equal([test.left, *test.comparators])
    return False


def _are_equal(values: Sequence[ast.expr]) -> bool:
    """Return True for two expressions with the same source."""
    return len(values) == 2 and ast.dump(values[0]) == ast.dump(values[1])
