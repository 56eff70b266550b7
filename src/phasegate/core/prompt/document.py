"""The unified prompt: what an agent is told, whichever agent it is, and its one form as XML."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import NoReturn
from xml.parsers import expat

import msgspec

from phasegate.core.text.xml import (
    decode_forbidden,
    encode_forbidden,
    escape_attribute,
    escape_text,
    is_xml_safe,
)
from phasegate.errors import MalformedPrompt
from phasegate.typed import read_value


class ItemType(StrEnum):
    FILE = "file"
    ARTIFACT = "artifact"
    THOUGHT = "thought"


class ContextItem(msgspec.Struct, frozen=True, omit_defaults=False):
    """One thing that the agent is shown.

    A file of the repository, a document of an earlier phase, a thought.
    """

    type: ItemType = ItemType.ARTIFACT
    name: str | None = None
    content: str = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "type", _parse_item_type(self.type))


def _parse_item_type(value: str) -> ItemType:
    try:
        return ItemType(value)
    except ValueError:
        allowed = ", ".join(ItemType)
        raise MalformedPrompt(
            f"{value!r} is not a type of a context item", f"use one of {allowed}"
        ) from None


def _raise_missing_instructions() -> str:
    raise MalformedPrompt("a prompt without instructions", "give the text that says what to do")


class UnifiedPrompt(msgspec.Struct, frozen=True):
    """System prompt, context and instructions, the same for every agent."""

    system_prompt: str | None = None
    context: tuple[ContextItem, ...] = ()
    instructions: str = msgspec.field(default_factory=_raise_missing_instructions)

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "context", tuple(self.context))
        if not isinstance(self.instructions, str):
            _raise_missing_instructions()
        if not isinstance(self.system_prompt, str | None):
            raise MalformedPrompt("a system prompt that is not text", "give text, or None for none")

    def to_xml(self) -> str:
        """The prompt as well-formed XML; `from_xml` gives back the same prompt for any text."""
        items = [render_element(item.type, item.content, item.name) for item in self.context]
        return "".join([render_head(self.system_prompt), *items, render_tail(self.instructions)])

    @classmethod
    def from_xml(cls, text: str) -> UnifiedPrompt:
        """Read what `to_xml` wrote; anything else is a `MalformedPrompt`."""
        return _PromptParser().parse(text)

    def to_json(self) -> str:
        """The prompt as JSON of the published schema, in ASCII, so that lone surrogates survive."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str | bytes) -> UnifiedPrompt:
        """Read JSON of the published schema.

        Properties that the schema does not name are passed over.
        """
        try:
            return read_value(json.loads(text), cls)
        except (ValueError, RecursionError, msgspec.ValidationError) as error:
            raise MalformedPrompt(f"not a prompt as JSON: {error}") from error

    def to_dict(self) -> dict[str, object]:
        """Plain data of the published schema; what is absent is left out."""
        plain: dict[str, object] = (
            {} if self.system_prompt is None else {"system_prompt": self.system_prompt}
        )
        return plain | {
            "context": [_item_to_dict(item) for item in self.context],
            "instructions": self.instructions,
        }


def _item_to_dict(item: ContextItem) -> dict[str, str]:
    if item.name is None:
        name = {}
    else:
        name = {"name": item.name}
    return {"type": item.type.value, **name, "content": item.content}


# --- writing. The stream writer of `prompts/` uses these too, so that both give the same bytes.


def render_head(system_prompt: str | None) -> str:
    """Everything before the first context item."""
    if system_prompt is None:
        system = ""
    else:
        system = render_element("system_prompt", system_prompt)
    return f"<prompt>\n{system}<context>\n"


def render_tail(instructions: str) -> str:
    """Everything after the last context item."""
    return f"</context>\n{render_element('instructions', instructions)}</prompt>"


def render_element(tag: str, content: str, name: str | None = None) -> str:
    """One element with its text, on lines of its own.

    The text itself gets no blank and no line end added.
    """
    plain = is_xml_safe(content)
    if plain:
        text = content
    else:
        text = encode_forbidden(content)

    return f"{render_start_tag(tag, name, plain)}{escape_text(text)}{render_end_tag(tag)}"


def render_start_tag(tag: str, name: str | None, content_is_plain: bool) -> str:
    """The start tag. `escaped` names the parts of the element that are spelled."""
    name_is_plain = name is None or is_xml_safe(name)
    spelled = [
        word
        for word, is_plain in (("name", name_is_plain), ("content", content_is_plain))
        if not is_plain
    ]
    attribute = ""
    if name is not None:
        attribute = f" {_get_name_attribute(tag)}='{escape_attribute(name if name_is_plain else encode_forbidden(name))}'"
    if spelled:
        return f"<{tag}{attribute} escaped='{' '.join(spelled)}'>"

    return f"<{tag}{attribute}>"


def render_end_tag(tag: str) -> str:
    return f"</{tag}>\n"


def _get_name_attribute(tag: str) -> str:
    if tag == ItemType.FILE:
        return "path"
    return "name"


# --- reading

_PARENT = {"prompt": "", "system_prompt": "prompt", "context": "prompt", "instructions": "prompt"}
_PARENT |= dict.fromkeys(ItemType, "context")
_TEXT_ELEMENTS = frozenset({"system_prompt", "instructions", *ItemType})
_ESCAPED_FORMS = {
    "": (),
    "name": ("name",),
    "content": ("content",),
    "name content": ("name", "content"),
}


class _PromptParser:
    """One reading of one prompt.

    No document type, no entity of its own, nothing that we never write.
    """

    def __init__(self) -> None:
        self._open: list[str] = []
        self._attributes: dict[str, str] = {}
        self._text: list[str] = []
        self._fields: dict[str, str] = {}
        self._seen: set[str] = set()
        self._items: list[ContextItem] = []
        self._parser = parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.StartElementHandler = self._handle_start
        parser.EndElementHandler = self._handle_end
        parser.CharacterDataHandler = self._handle_text
        parser.StartDoctypeDeclHandler = lambda *_: self._refuse("a document type is not allowed")
        parser.ProcessingInstructionHandler = lambda *_: self._refuse(
            "a processing instruction is not allowed"
        )
        parser.CommentHandler = lambda _: self._refuse("a comment is not allowed")

    def parse(self, text: str) -> UnifiedPrompt:
        try:
            self._parser.Parse(text.encode(), True)
        except (expat.ExpatError, UnicodeEncodeError) as error:
            raise MalformedPrompt(f"not the XML of a prompt: {error}") from error

        if "instructions" not in self._fields:
            self._refuse("there are no instructions")
        return UnifiedPrompt(
            self._fields.get("system_prompt"), tuple(self._items), self._fields["instructions"]
        )

    def _handle_start(self, tag: str, attributes: dict[str, str]) -> None:
        parent = self._open[-1] if self._open else ""
        if _PARENT.get(tag) != parent:
            self._refuse(
                f"<{tag}> does not belong into <{parent}>" if parent else f"the root is <{tag}>"
            )

        if tag in _PARENT and tag not in tuple(ItemType):
            if tag in self._seen:
                self._refuse(f"a second <{tag}>")

            self._seen.add(tag)

        self._open.append(tag)
        self._attributes = attributes
        self._text = []

    def _handle_text(self, text: str) -> None:
        if self._open[-1] in _TEXT_ELEMENTS:
            self._text.append(text)
        elif text.strip(" \n"):
            self._refuse(f"text between the elements of <{self._open[-1]}>")

    def _handle_end(self, tag: str) -> None:
        self._open.pop()
        if tag not in _TEXT_ELEMENTS:
            return

        name, content = self._decode_element(tag, "".join(self._text))
        if tag in ("system_prompt", "instructions"):
            self._fields[tag] = content
        else:
            self._items.append(ContextItem(ItemType(tag), name, content))

    def _decode_element(self, tag: str, content: str) -> tuple[str | None, str]:
        attributes = dict(self._attributes)
        escaped = _ESCAPED_FORMS.get(attributes.pop("escaped", ""))
        if tag in tuple(ItemType):
            name = attributes.pop(_get_name_attribute(tag), None)
        else:
            name = None

        if escaped is None or attributes or ("name" in escaped and name is None):
            self._refuse(f"<{tag}> has an attribute that is not ours")

        try:
            if name is not None and "name" in escaped:
                name = decode_forbidden(name)
            return name, decode_forbidden(content) if "content" in escaped else content
        except ValueError:
            self._refuse(f"<{tag}> has a wrong escape")

    def _refuse(self, what: str) -> NoReturn:
        raise MalformedPrompt(
            f"not the XML of a prompt: {what} (line {self._parser.CurrentLineNumber})"
        )
