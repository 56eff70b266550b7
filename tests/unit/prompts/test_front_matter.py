"""Front matter is read as text, in full, or not at all."""

from __future__ import annotations

import pytest
import yaml

from phasegate.core.text.yaml_nodes import (
    FieldReader,
    MalformedDocument,
    YamlList,
    YamlMapping,
    YamlText,
    split_front_matter,
)
from phasegate.prompts import front_matter
from phasegate.prompts.front_matter import read_document, read_yaml


def test_scalars_stay_the_text_that_was_written() -> None:
    node = read_yaml("a: no\nb: 1.10\nc: 0x1F\nd: ~\ne: 2025-01-15\nf: 'yes'\n")
    assert isinstance(node, YamlMapping)
    texts = {key: value.value for key, value in node.values.items() if isinstance(value, YamlText)}
    assert texts == {"a": "no", "b": "1.10", "c": "0x1F", "d": "~", "e": "2025-01-15", "f": "yes"}


def test_a_document_without_front_matter_is_all_body() -> None:
    assert read_document("# Title\n---\n").front_matter is None
    assert read_document("").front_matter is None
    assert read_document("# Title\n").body == "# Title\n"


def test_the_body_begins_in_the_line_behind_the_front_matter() -> None:
    parts = split_front_matter("---\na: 1\nb: 2\n---\nbody\n---\n")
    assert (parts.front_matter, parts.body, parts.body_line) == ("a: 1\nb: 2\n", "body\n---\n", 5)


@pytest.mark.parametrize(
    "text", ["---\r\na: 1\r\n---\r\nbody", "\ufeff---\na: 1\n---\nbody", "--- \na: 1\n---\t\nbody"]
)
def test_line_ends_a_byte_order_mark_and_trailing_blanks_do_not_hide_front_matter(
    text: str,
) -> None:
    document = read_document(text)
    assert document.body == "body"
    assert document.front_matter is not None
    assert document.front_matter.values["a"] == YamlText("1", 2)


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("---\na: 1\n", 1, "not closed"),
        ("---\na: 1\nb: 2\na: 3\n---\n", 4, "twice, first in line 2"),
        ("---\na: &x 1\nb: *x\n---\n", 2, "anchor"),
        ("---\nb: 1\na: *x\n---\n", 3, "alias"),
        ("---\na: !!python/object/apply:os.system [id]\n---\n", 2, "tag"),
        ("---\na: ! x\n---\n", 2, "tag"),
        ("---\n? [a, b]\n: c\n---\n", 2, "as a key"),
        ("---\n- a\n---\n", 2, "mapping"),
        ("---\nplain words\n---\n", 2, "mapping"),
        ("---\na: 1\n--- b\n---\n", 3, "second document"),
        ("---\n%YAML 1.1\n--- a\n---\n", 2, "directive"),
        ("---\na: [1, 2\n---\n", 3, "not valid YAML"),
        ("---\na: 1\n\tb: 2\n---\n", 3, "not valid YAML"),
        ("---\na: \x07\n---\n", 2, "not valid YAML"),
        ("---\na: [[[[[[[[1]]]]]]]]\n---\n", 2, "nested deeper"),
    ],
)
def test_what_is_not_plain_data_is_refused_with_its_line(text: str, line: int, why: str) -> None:
    with pytest.raises(MalformedDocument) as refused:
        read_document(text)
    assert why in refused.value.finding.message
    assert refused.value.finding.line == line
    assert refused.value.finding.code == "front-matter"


def test_front_matter_over_the_limit_is_refused() -> None:
    with pytest.raises(MalformedDocument, match="larger than"):
        read_yaml("a: " + "x" * front_matter.MAX_YAML_CHARACTERS)


def test_the_slow_parser_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: [x, 'y']\nb: {c: 1.10, d: [e]}\nf: |\n  two\n  lines\n"
    fast = read_yaml(text)
    monkeypatch.setattr(front_matter, "_LOADER", yaml.BaseLoader)
    assert read_yaml(text) == fast
    with pytest.raises(MalformedDocument):
        read_yaml("a: &x 1")


def test_a_merge_key_is_a_key_like_any_other() -> None:
    node = read_yaml("<<: {a: 1}\nb: 2\n")
    assert isinstance(node, YamlMapping)
    assert sorted(node.values) == ["<<", "b"]


def _fields(text: str) -> FieldReader:
    node = read_yaml(text)
    assert isinstance(node, YamlMapping)
    return FieldReader(node)


def test_an_unknown_key_is_refused_and_the_right_one_suggested() -> None:
    fields = _fields("titel: x\nother: y\n")
    fields.read_text("title")
    fields.report_unknown_keys()
    assert [(found.line, found.code) for found in fields.findings] == [
        (2, "unknown-key"),
        (1, "unknown-key"),
    ]
    assert "did you mean `title`?" in fields.findings[1].message
    assert "did you mean" not in fields.findings[0].message


@pytest.mark.parametrize("value", ["one", "{a: b}", "[[a]]", "[{a: b}]"])
def test_a_list_is_due_where_a_list_is_due(value: str) -> None:
    fields = _fields(f"things: {value}\n")
    assert fields.read_texts("things") == ()
    assert [found.message for found in fields.findings] == [
        "things must be a list of single values, such as [one, two]"
    ]


@pytest.mark.parametrize("value", ["[a]", "{a: b}"])
def test_a_single_value_is_due_where_one_is_due(value: str) -> None:
    fields = _fields(f"title: {value}\n")
    assert fields.read_text("title") == ""
    assert fields.findings


@pytest.mark.parametrize("value", ["-1", "1.0", "x", "''", "٣", "9" * 30])
def test_a_number_is_a_plain_whole_number(value: str) -> None:
    fields = _fields(f"n: {value}\n")
    assert fields.read_number("n", 7) == 7
    assert fields.findings


def test_every_problem_is_reported_at_the_line_of_its_value() -> None:
    fields = _fields("list:\n  - a\n  - b\nmap:\n  key: x\n")
    fields.report_problem("list", "is wrong", "b")
    fields.report_problem("list", "is wrong", "c")
    fields.report_problem("map.key", "is wrong")
    fields.report_problem("absent", "is missing")
    assert [found.line for found in fields.findings] == [3, 1, 5, 1]


def test_an_empty_key_is_an_empty_list_or_mapping() -> None:
    fields = _fields("a:\nb:\n")
    assert fields.read_texts("a") == ()
    assert fields.read_nested("b") is None
    assert fields.findings == []
    assert isinstance(read_yaml("- a"), YamlList)
