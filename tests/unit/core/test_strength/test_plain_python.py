"""Python statements with their aliases resolved and their composed texts joined."""

from __future__ import annotations

import pytest

from phasegate.core.test_strength.plain_python import list_plain_statements


def plain(text: str) -> list[str]:
    return [found for _, found in list_plain_statements(text, range(1, 99))]


@pytest.mark.demand("E1.b")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from sys import modules as m\n'py' + 'test' in m\n", "'pytest' in sys.modules"),
        ("import sys as s\nx = getattr(s, 'mod' 'ules')\n", "x = sys.modules"),
        ("import sys\nx = vars(sys)['modules']\n", "x = sys.modules"),
        ("import sys\nx = sys.__dict__['argv']\n", "x = sys.argv"),
        ("x = __import__('tsettinu'[::-1]).TestCase\n", "x = unittest.TestCase"),
        ("x = '_'.join(('A', 'B')) + 'C'\n", "x = 'A_BC'"),
        ("import pytest\nslow = pytest.mark.skip\n@slow\ndef test(): ...\n", "@pytest.mark.skip "),
        ("MANY = -5\nclose(1, MANY)\n", "close(1, -5)"),
    ],
)
def test_aliases_and_composed_texts_are_written_out(text: str, found: str) -> None:
    assert found in plain(text)


@pytest.mark.demand("E1.b")
def test_a_name_that_stands_for_a_part_of_itself_and_broken_files_end() -> None:
    assert plain("a = a.b\na()\n") == ["a = a.b.b", "a.b()"]
    assert plain("'x'.join(1, 2)\n'y'.upper(z)\n") == ["'x'.join(1, 2)", "'y'.upper(z)"]
    assert plain("def broken(:\n") == []
    quotes = "'\\n\\'\\\"\\'\\'\\'\\\"\\\"\\\"'"
    assert len(plain(f"ALL = {quotes}\nx = f'{{ALL}}'\n")) == 1
    assert plain('"""A text about pytest."""\n') == []


def test_only_statements_on_the_given_lines_are_returned() -> None:
    found = [*list_plain_statements("if a:\n    b = (1,\n         2)\n    c = 3\n", {3})]
    assert found == [(range(2, 4), "b = (1, 2)")]
