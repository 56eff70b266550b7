"""The unified prompt, its XML and its JSON."""

from __future__ import annotations

import jsonschema_rs
import msgspec
import pytest

import phasegate
from phasegate.core.prompt.document import ContextItem, UnifiedPrompt
from phasegate.errors import MalformedPrompt
from support.prompt_schemas import UNIFIED_PROMPT

PROMPT = UnifiedPrompt(
    "Be brief.",
    [
        ContextItem("file", "src/main.rs", "fn main() {}\n"),
        ContextItem(type="artifact", name="plan.md", content="# Plan <1>\r\n"),
        ContextItem("thought", None, "a & b"),
    ],
    "Add login",
)
XML = """<prompt>
<system_prompt>Be brief.</system_prompt>
<context>
<file path='src/main.rs'>fn main() {}
</file>
<artifact name='plan.md'># Plan &lt;1&gt;&#13;
</artifact>
<thought>a &amp; b</thought>
</context>
<instructions>Add login</instructions>
</prompt>"""


@pytest.mark.demand("P2.a", "P2.b", "P1.a", "P3.a")
def test_the_xml_of_a_prompt_byte_for_byte() -> None:
    assert PROMPT.to_xml() == XML
    assert UnifiedPrompt.from_xml(XML) == PROMPT


@pytest.mark.demand("P1.c")
def test_only_the_instructions_are_required() -> None:
    bare = UnifiedPrompt(instructions="Go")
    assert (bare.system_prompt, bare.context) == (None, ())
    assert (
        bare.to_xml()
        == "<prompt>\n<context>\n</context>\n<instructions>Go</instructions>\n</prompt>"
    )
    assert UnifiedPrompt.from_xml(bare.to_xml()) == bare
    with pytest.raises(MalformedPrompt, match="has no instructions"):
        UnifiedPrompt("system")


@pytest.mark.demand("P1.a")
def test_the_package_offers_the_names() -> None:
    assert phasegate.UnifiedPrompt is UnifiedPrompt
    assert phasegate.ContextItem is ContextItem


@pytest.mark.demand("P1.a")
def test_a_prompt_cannot_be_changed() -> None:
    for change in (
        lambda: setattr(PROMPT, "instructions", "x"),
        lambda: setattr(PROMPT.context[0], "content", "x"),
    ):
        with pytest.raises(AttributeError):
            change()


@pytest.mark.demand("P1.a")
def test_an_unknown_type_of_item_is_refused_by_name() -> None:
    with pytest.raises(MalformedPrompt, match="'image' is not a context item type"):
        ContextItem("image", "x", "y")


@pytest.mark.demand("P1.b")
@pytest.mark.parametrize(
    "prompt", [PROMPT, UnifiedPrompt(instructions="Go"), UnifiedPrompt("", [ContextItem()], "")]
)
def test_what_the_class_gives_is_valid_against_the_published_schema(prompt: UnifiedPrompt) -> None:
    assert jsonschema_rs.is_valid(UNIFIED_PROMPT, msgspec.json.decode(prompt.to_json()))
    assert UnifiedPrompt.from_json(prompt.to_json()) == prompt


@pytest.mark.demand("P1.b")
@pytest.mark.parametrize(
    "document",
    [
        {"instructions": "Go"},
        {"instructions": "", "context": []},
        {"instructions": "Go", "context": [{}], "unknown": 1},
        {
            "instructions": "Go",
            "system_prompt": "s",
            "context": [{"type": "thought", "content": "c", "extra": []}],
        },
        {"instructions": "Go", "context": [{"name": "n"}, {"type": "file", "name": "f"}]},
    ],
)
def test_what_the_published_schema_allows_the_class_accepts(document: dict[str, object]) -> None:
    assert jsonschema_rs.is_valid(UNIFIED_PROMPT, document)
    read = UnifiedPrompt.from_json(msgspec.json.encode(document))
    assert len(read.context) == len(document.get("context", []))  # type: ignore[arg-type]
    assert jsonschema_rs.is_valid(UNIFIED_PROMPT, read.to_dict())


@pytest.mark.demand("P1.b")
@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "nonsense",
        '{"instructions": 1}',
        '{"instructions": "a", "context": {}}',
        '{"instructions": "a", "context": [{"type": "image"}]}',
        '{"instructions": "a", "context": [1]}',
        "[" * 100_000,
    ],
)
def test_what_the_published_schema_refuses_the_class_refuses(text: str) -> None:
    with pytest.raises(MalformedPrompt):
        UnifiedPrompt.from_json(text)


@pytest.mark.demand("P2.f")
def test_what_xml_cannot_carry_is_spelled_and_the_element_says_so() -> None:
    item = ContextItem("file", "a\x00b", "bell \x07, byte \udcff, literal \\u{7}")
    xml = UnifiedPrompt(None, [item], "\ufffe").to_xml()
    assert (
        r"<file path='a\u{0}b' escaped='name content'>bell \u{7}, byte \u{dcff}, literal \u{5c}u{7}</file>"
        in xml
    )
    assert r"<instructions escaped='content'>\u{fffe}</instructions>" in xml


@pytest.mark.demand("P2.c", "P2.f")
def test_a_text_that_looks_like_the_spelling_stays_as_it_is_where_nothing_is_spelled() -> None:
    prompt = UnifiedPrompt(None, [ContextItem("file", "a", r"let c = '\u{7}';")], "x")
    assert r"<file path='a'>let c = '\u{7}';</file>" in prompt.to_xml()
    assert UnifiedPrompt.from_xml(prompt.to_xml()) == prompt


@pytest.mark.demand("P2.d")
@pytest.mark.parametrize(
    ("xml", "reason"),
    [
        ("", "no element"),
        ("<prompt>", "no element|line 1"),
        ("<prompt><context/></prompt>", "no instructions"),
        ("<other><instructions/></other>", "root is <other>"),
        ("<prompt><instructions/><instructions/></prompt>", "second <instructions>"),
        ("<prompt><instructions><file/></instructions></prompt>", "is not allowed in"),
        ("<prompt><context><image/></context><instructions/></prompt>", "is not allowed in"),
        ("<prompt>text<instructions/></prompt>", "text between"),
        ("<prompt><instructions lang='en'/></prompt>", "attribute"),
        ("<prompt><context><file name='x'/></context><instructions/></prompt>", "attribute"),
        ("<prompt><instructions escaped='all'/></prompt>", "attribute"),
        (
            r"<prompt><instructions escaped='content'>\u{41}</instructions></prompt>",
            "invalid escape",
        ),
        (r"<prompt><instructions escaped='content'>\u{</instructions></prompt>", "invalid escape"),
        ("<prompt><!-- hi --><instructions/></prompt>", "comment"),
        ("<prompt><?php ?><instructions/></prompt>", "processing instruction"),
        ("<prompt><instructions>&unknown;</instructions></prompt>", "entity"),
        ("<prompt><instructions>\ud800</instructions></prompt>", "surrogates"),
    ],
)
def test_xml_that_we_never_write_is_refused_with_the_reason(xml: str, reason: str) -> None:
    with pytest.raises(MalformedPrompt, match=reason):
        UnifiedPrompt.from_xml(xml)
