"""Find functions that only answer the values of the tests: tables, conditions and constants."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection, Iterator, Sequence

from phasegate.core.test_strength.blocks import blank_comments, find_closing, list_functions

# Numbers that are only a limit or a divisor say nothing about a single result
_NUMBER = re.compile(r"(?<![\w.])(?<![%<] )(?<![^=]> )(?<![<>]= )\d[\d_.]*(?!\w)")
_TEXT = re.compile(r"'\w[^'\n]+'")
_TYPE_ARGUMENTS = re.compile(r"\[[^\[\]]*\]")
_TRIVIAL = frozenset(("0", "1", "2", "10", "100"))
_HEADER = re.compile(r"\(|\blambda [^:]*:|(?<==) *\w+ *=>")
_PARAMETER = re.compile(r"(?:^\(?|,|lambda)\s*[*.]*([A-Za-z_$][\w$]*)")
_WORD = re.compile(r"[A-Za-z_$][\w$]*")


def find_fitted_functions(
    path: str, text: str, added: Collection[int], definitions: str, tests: str
) -> Iterator[tuple[int, str]]:
    """Yield the line of each added function that fits the tests, and what it has of them.

    `definitions` is the changed code, whose tables a function may use; `tests` the changed tests.
    """
    lines = text.split("\n")
    test_lines = tests.replace('"', "'").splitlines()
    tested = [_list_numbers(line) for line in test_lines]
    for name, span in list_functions(path, text):
        if not any(number in added for number in span) or name not in tests:
            continue

        source = _strip(path, "\n".join(lines[span.start - 1 : span.stop - 1]))
        head, body = _split_header(source)
        parameters = {*_PARAMETER.findall(head)} - {"self", "cls", "this"}
        if not parameters:
            continue
        values = _list_numbers(f"{head}\n{body}\n{_find_tables(body, definitions)}")
        ignored = parameters - {*_WORD.findall(body)}
        used = {text for text in _TEXT.findall(body) if text in tests.replace('"', "'")}
        used |= values.intersection(*[set().union(*tested)])
        if ignored and used:
            what = f"{name} ignores {sorted(ignored)[0]} and has a test's value: {sorted(used)[0]}"
            yield span.start, what
        elif _are_copied(values, tested):
            yield span.start, f"the values in {name} are those of the tests: {sorted(values)[:6]}"


def _are_copied(values: set[str], tested: Sequence[set[str]]) -> bool:
    """Return True if most values are in tests, and at least two of them in one line."""
    known = {value for value in values if any(value in line for line in tested)}
    pairs = [values & line for line in tested if len(values & line) > 1]
    # Digits are the same by chance
    is_pair = any(len(value) > 1 for pair in pairs for value in pair)
    return is_pair and 3 * len(known) >= 2 * len(values)


def _list_numbers(text: str) -> set[str]:
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
        return blank_comments(source).replace('"', "'")
    try:
        tree = ast.parse(textwrap.dedent(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source

    body = getattr(tree.body[0], "body", [])
    if isinstance(body, list) and len(body) > 1 and isinstance(body[0], ast.Expr):
        del body[0]
    return ast.unparse(tree)


def _find_tables(body: str, definitions: str) -> str:
    """Return the definitions of the names that a function uses."""
    found = []
    for word in {*_WORD.findall(body)}:
        name = rf"^(?:export )?(?:(?:const|let|var) )?{re.escape(word)}\b[^=(\n]*=(?!=)[^\n]*"
        for place in re.finditer(name, definitions, re.M):
            bracket = re.search(r"[(\[{]", place[0])
            end = place.end()
            if bracket:
                end = max(end, find_closing(definitions, place.start() + bracket.start()))
            found.append(definitions[place.start() : end])
    return "\n".join(found)
