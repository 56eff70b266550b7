"""A prompt comes back from its XML exactly, whatever was in it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasegate.core.prompt.document import ContextItem, ItemType, UnifiedPrompt
from phasegate.core.prompt.template import fill_template
from support import any_text


@pytest.mark.demand("P2.d", "P2.e", "P2.g")
@given(any_text.prompts)
def test_reading_what_was_written_gives_the_same_prompt_for_any_text(prompt: UnifiedPrompt) -> None:
    assert UnifiedPrompt.from_xml(prompt.to_xml()) == prompt


@pytest.mark.demand("P2.c", "P2.d", "P2.f")
@given(any_text.prompts)
def test_a_plain_parser_sees_every_text_that_xml_can_carry_unchanged(prompt: UnifiedPrompt) -> None:
    root = ElementTree.fromstring(prompt.to_xml().encode())
    shown = [root.find("instructions"), *(root.find("context") or ())]
    texts = [prompt.instructions, *(item.content for item in prompt.context)]
    assert len(shown) == len(texts)
    for element, text in zip(shown, texts, strict=True):
        assert element is not None
        if any_text.xml_carries(text):
            assert (element.text or "") == text
            assert "content" not in element.get("escaped", "").split()
        else:
            assert "content" in element.get("escaped", "").split()


@pytest.mark.demand("P2.b", "P2.c")
@given(st.sampled_from(ItemType), any_text.text)
def test_a_plain_parser_sees_every_name_that_xml_can_carry_unchanged(
    kind: ItemType, name: str
) -> None:
    root = ElementTree.fromstring(
        UnifiedPrompt("", [ContextItem(kind, name, "")], "").to_xml().encode()
    )
    seen = root.find(f"context/{kind}")
    assert seen is not None
    if any_text.xml_carries(name):
        assert seen.attrib == {"path" if kind == "file" else "name": name}


@pytest.mark.demand("T3.c")
@given(any_text.text, any_text.text)
def test_a_value_goes_in_untouched(before: str, value: str) -> None:
    template = before.replace("{", "(") + "{{TASKS}}|"
    hostile = value + "{{TASKS}}{{PROJECT_CONTEXT}}\\1\\g<0>"
    filled = fill_template(
        template, {"TASKS": hostile, "PROJECT_CONTEXT": "never"}, "missing {name}"
    )
    assert filled.text == before.replace("{", "(") + hostile + "|"
