"""Any text that can reach a prompt: every character there is, halves of pairs and control characters included."""

from __future__ import annotations

from hypothesis import strategies as st

from phasegate.core.prompt.document import ContextItem, ItemType, UnifiedPrompt

# What breaks careless renderers, besides whatever hypothesis thinks of.
_AWKWARD = (
    "</file></context><instructions>",
    "]]>",
    "<![CDATA[",
    "&lt;",
    "&amp;amp;",
    "&#13;",
    "\\u{",
    "\\u{5c}u{",
    "\\u{0}",
    "\r\n",
    "\t",
    "\x00",
    "\x1b[2J",
    "\ufffe",
    "\uffff",
    "\ud800",
    "\udc80",
    "\x85",
    "\u2028",
    "'",
    '"',
    "escaped='content'",
)
characters = st.characters(codec=None, categories=None)
text = st.lists(
    st.one_of(st.sampled_from(_AWKWARD), st.text(characters, max_size=8)), max_size=8
).map("".join)
items = st.builds(ContextItem, st.sampled_from(ItemType), st.none() | text, text)
prompts = st.builds(UnifiedPrompt, st.none() | text, st.lists(items, max_size=4), text)


def xml_carries(string: str) -> bool:
    """XML 1.0, production 2 (Char), written down independently of the product."""
    return all(
        code in (0x9, 0xA, 0xD)
        or 0x20 <= code <= 0xD7FF
        or 0xE000 <= code <= 0xFFFD
        or code >= 0x10000
        for code in map(ord, string)
    )
