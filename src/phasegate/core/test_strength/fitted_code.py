"""Find functions that only answer the values of the tests: tables, conditions and constants.

Two things are signs of it: a function ignores a parameter and has a value of a test, or nearly
all its numbers are in tests and two of them in one line, as an input and its result are. Numbers
that are only compared by size, or that divide, are limits of a rule and do not count.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection, Iterator

from phasegate.core.test_strength.blocks import blank_comments, find_closing, list_functions

# Numbers that are only a limit or a divisor say nothing about a single result
_NUMBER = re.compile(r"(?<![\w.])(?<![%<] )(?<![^=]> )(?<![<>]= )\d[\d_.]*(?!\w)")
# Texts of which a function may consist
_TEXT = re.compile(r"'\w[^'\n]+'")
# `dict[str, int]` in the parameters
_TYPE_ARGUMENTS = re.compile(r"\[[^\[\]]*\]")
_TRIVIAL = frozenset(("0", "1", "2", "10", "100"))
# Values that code and tests often share
_ROUND = re.compile(r"\d|[\d_]*0|16|32|64|128|256|512|1024|\d\.\d")
_MAX_SHORT_CHARS = 80
# Where the parameters begin, or all of them
_HEADER = re.compile(r"\(|\blambda [^:]*:|(?<==) *\w+ *=>")
# A parameter whose name begins with an underscore is ignored on purpose
_PARAMETER = re.compile(r"(?:^\(?|,|lambda)\s*[*.]*([A-Za-z$][\w$]*)")
# A definition at the start of a line, also of an entry: `TABLE[57, 15] = 42`
_TABLE = re.compile(
    r"^(?:export )?(?:(?:const|let|var) )?([A-Za-z_$][\w$]*)\b[^=(\n]*=(?!=)[^\n]*", re.M
)
_MAX_TABLE_CHARS = 10_000
_WORD = re.compile(r"[A-Za-z_$][\w$]*")


class FittedCode:
    """Compares functions with the changed tests.

    A function has the values of the tables that it names, in whatever changed file they are.
    """

    def __init__(self, code: str, tests: str) -> None:
        self._tests = tests.replace('"', "'")
        self._lines = [_list_numbers(line) for line in self._tests.splitlines()]
        self._numbers = _list_numbers(self._tests)
        self._tables: dict[str, str] = {}
        for place in _TABLE.finditer(code):
            part = code[place.start() : place.start() + _MAX_TABLE_CHARS]
            end = len(place[0])

            # A table continues up to its closing bracket
            bracket = re.search(r"[(\[{]", place[0])
            if bracket:
                end = max(end, find_closing(part, bracket.start()))

            name = place[1]
            known = self._tables.get(name, "")
            self._tables[name] = f"{known}{part[:end]}\n"

    def find(self, path: str, text: str, added: Collection[int]) -> Iterator[tuple[int, str]]:
        """Yield the line of each added function that fits the tests, and what it has of them."""
        lines = text.split("\n")
        new_lines = {lines[number - 1] for number in added if number <= len(lines)}
        for name, span in list_functions(path, text):
            # Methods with such names have given parameters
            if name.startswith("__"):
                continue

            own = lines[span.start - 1 : span.stop - 1]
            words = {*_WORD.findall("\n".join(own))}

            # A function is new as well if the table that it reads is new
            tables = "".join(self._tables.get(word, "") for word in words)
            is_new = not new_lines.isdisjoint((*own, *tables.split("\n")))
            if not is_new or name not in self._tests:
                continue

            head, body = _split_header(_strip(path, "\n".join(own)))
            found = self._judge(name, head, body, tables)
            if found:
                yield span.start, found

    def _judge(self, name: str, head: str, body: str, tables: str) -> str:
        """Return what a function has of the tests; empty if that is nothing."""
        parameters = {*_PARAMETER.findall(head)} - {"self", "cls", "this"}
        if not parameters:
            return ""

        values = _list_numbers("\n".join((head, body, tables)))
        known = values & self._numbers
        is_fitted = 5 * len(known) >= 4 * len(values) and self._has_pair(values)

        # What is in a test by more than chance
        specific = {value for value in known if not _ROUND.fullmatch(value)}
        if len(body) < _MAX_SHORT_CHARS:
            specific.update(text for text in _TEXT.findall(body) if text in self._tests)

        ignored = parameters - {*_WORD.findall(body)}
        if ignored and specific:
            return f"{name} ignores {min(ignored)} and has a test's value: {min(specific)}"
        if is_fitted:
            shown = ", ".join(sorted(values)[:6])
            return f"the values in {name} are those of the tests: {shown}"
        return ""

    def _has_pair(self, values: set[str]) -> bool:
        """Return True if a line has two of the values, of which one is not there by chance."""
        for line in self._lines:
            pair = values & line
            is_specific = values == line or not all(map(_ROUND.fullmatch, pair))
            if len(pair) > 1 and is_specific:
                return True
        return False


def _list_numbers(text: str) -> set[str]:
    """Return the numbers of a text that are not in nearly every text."""
    return {*_NUMBER.findall(text)} - _TRIVIAL


def _split_header(source: str) -> tuple[str, str]:
    """Split a function into its parameters and the rest."""
    found = _HEADER.search(source)
    if found is None:
        return "", source

    end = found.end()
    if found[0] == "(":
        end = find_closing(source, found.start())
    head = source[found.start() : end].strip()
    return _TYPE_ARGUMENTS.sub("", _TYPE_ARGUMENTS.sub("", head)), source[end:]


def _strip(path: str, source: str) -> str:
    """Return the source of a function without comments and documentation."""
    if not path.endswith(".py"):
        # Texts are compared in single quotes
        return blank_comments(source).replace('"', "'")

    try:
        tree = ast.parse(textwrap.dedent(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source

    body = getattr(tree.body[0], "body", [])
    if isinstance(body, list) and len(body) > 1 and isinstance(body[0], ast.Expr):
        del body[0]
    return ast.unparse(tree)
