"""Alter changed lines of a source file, one at a time: a test should notice each of them.

Lines are altered by patterns, with strings and comments blanked out. Python has to parse after it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from itertools import zip_longest

import msgspec

from phasegate.core.test_strength.blocks import JAVASCRIPT, blank_strings

EMPTIED = "emptied body"
MAX_MUTANTS = 200
_PYTHON_TOKEN = re.compile(
    r"\"\"\".*?\"\"\"|'''.*?'''|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|#[^\n]*", re.S
)
_NUMBER = r"(?<![\w.])(\d+)(?![\w.])"
_Operator = tuple[str, str, dict[str, str]]
_SHARED: tuple[_Operator, ...] = (
    ("boundary", r"(?<![<=>!-])(<=|>=)(?!=)", {"<=": "<", ">=": ">"}),
    ("boundary", r"(?<=\s)([<>])(?=\s)", {"<": "<=", ">": ">="}),
    ("arithmetic", r"(?<=[\w)\]] )([+*-])(?= [\w(])", {"+": "-", "-": "+", "*": "+"}),
    ("constant", _NUMBER, {}),
)
_JS_RETURN = r"(?:\breturn|=>)\s+(?![{(]|undefined\b)([^;{}]+?)\s*;?\s*$"
_OPERATORS: dict[str, tuple[_Operator, ...]] = {
    "python": (
        ("comparison", r"(?<![<>=!])(==|!=)(?!=)", {"==": "!=", "!=": "=="}),
        ("boolean", r"\b(and|or)\b", {"and": "or", "or": "and"}),
        ("boolean", r"\b(True|False)\b", {"True": "False", "False": "True"}),
        ("boolean", r"\b(not )(?!in\b)", {"not ": ""}),
        ("return value", r"\breturn\s+(?!None\b)(\S.*?)\s*$", {"": "None"}),
        ("removed call", r"^\s*((?:await )?[\w.]+\([^\n]*\))\s*$", {"": "pass"}),
        *_SHARED,
    ),
    "javascript": (
        ("comparison", r"(===|!==)", {"===": "!==", "!==": "==="}),
        ("boolean", r"(&&|\|\|)", {"&&": "||", "||": "&&"}),
        ("boolean", r"\b(true|false)\b", {"true": "false", "false": "true"}),
        ("return value", _JS_RETURN, {"": "undefined"}),
        ("removed call", r"^\s*((?:await )?[\w.]+\([^{}\n]*\));?\s*$", {"": "void 0"}),
        *_SHARED,
    ),
}
_JS_BODY = re.compile(
    r"(?:\bfunction\b[^{\n]*|=>\s*|^\s*(?!(?:if|for|while|switch|catch|else|do|try)\b)"
    r"(?:async |static |get |set )*[\w$]+\([^)\n]*\)\s*(?::[^{\n]*)?)\{",
    re.M,
)


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """A source file with one altered place."""

    line: int
    kind: str
    before: str
    after: str
    text: str


def make_mutants(path: str, text: str, lines: Collection[int]) -> list[Mutant]:
    """Return mutants of these lines: emptied bodies first, then every line in turn."""
    if path.endswith(".py"):
        blanked = _PYTHON_TOKEN.sub(lambda token: re.sub(r"[^\n]", "_", token[0]), text)
        emptied = _empty_python_bodies(text, lines)
        language = "python"
    elif path.endswith(JAVASCRIPT) and not path.endswith(".d.ts"):
        blanked = blank_strings(text)
        emptied = _empty_javascript_bodies(text, blanked, lines)
        language = "javascript"
    else:
        return []

    found = [*emptied]
    by_line = [[*_alter_line(text, blanked, number, language)] for number in sorted(lines)]
    found += [mutant for turn in zip_longest(*by_line) for mutant in turn if mutant is not None]
    valid = [one for one in found if language != "python" or _parses(one.text)]
    return valid[:MAX_MUTANTS]


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _alter_line(text: str, blanked: str, number: int, language: str) -> Iterator[Mutant]:
    """Yield one mutant for each operator and constant of a line."""
    rows = text.split("\n")
    row = rows[number - 1]
    plain = blanked.split("\n")[number - 1]
    if re.match(r"\s*(?:import|from|export \*|const \w+ = require|@)\b", row):
        return

    for kind, pattern, replacements in _OPERATORS[language]:
        for place in re.finditer(pattern, plain):
            start, end = place.span(1)
            old = row[start:end]
            new = replacements.get(old, replacements.get("", ""))
            if kind == "constant":
                new = str(int(old) + 1)
            altered = f"{row[:start]}{new}{row[end:]}"
            yield Mutant(
                line=number,
                kind=kind,
                before=row.strip(),
                after=altered.strip(),
                text="\n".join((*rows[: number - 1], altered, *rows[number:])),
            )


def _empty_python_bodies(text: str, lines: Collection[int]) -> Iterator[Mutant]:
    """Yield mutants that return at the start of a changed function."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return

    rows = text.split("\n")
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0]
        end = first.end_lineno or first.lineno
        inside = range(first.lineno, (node.end_lineno or first.lineno) + 1)
        if first.lineno > node.lineno and any(number in inside for number in lines):
            is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            position = end if is_docstring else first.lineno - 1
            added = " " * first.col_offset + "return None"
            yield Mutant(
                line=node.lineno,
                kind=EMPTIED,
                before=f"{node.name}(...)",
                after="return None",
                text="\n".join((*rows[:position], added, *rows[position:])),
            )


def _empty_javascript_bodies(text: str, blanked: str, lines: Collection[int]) -> Iterator[Mutant]:
    for place in _JS_BODY.finditer(blanked):
        number = blanked.count("\n", 0, place.end()) + 1
        if number in lines or number + 1 in lines:
            yield Mutant(
                line=number,
                kind=EMPTIED,
                before=text[place.start() : place.end()].strip(),
                after="return;",
                text=f"{text[: place.end()]} return; {text[place.end() :]}",
            )
