"""The unified prompt: one structure for all agents, with one XML form."""

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
    """The type of a context item."""

    FILE = "file"
    ARTIFACT = "artifact"
    THOUGHT = "thought"


class ContextItem(msgspec.Struct, frozen=True, omit_defaults=False):
    """One piece of context in a prompt.

    It is a file of the repository, a document of an earlier phase, or a thought.
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
            f"{value!r} is not a context item type", f"use one of {allowed}"
        ) from None


def _raise_missing_instructions() -> str:
    raise MalformedPrompt("the prompt has no instructions", "add the instructions")


class UnifiedPrompt(msgspec.Struct, frozen=True):
    """System prompt, context and instructions, in the same form for every agent."""

    system_prompt: str | None = None
    context: tuple[ContextItem, ...] = ()
    instructions: str = msgspec.field(default_factory=_raise_missing_instructions)

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "context", tuple(self.context))
        if not isinstance(self.instructions, str):
            _raise_missing_instructions()
        if not isinstance(self.system_prompt, str | None):
            raise MalformedPrompt("the system prompt is not a string", "pass a string or None")

    def to_xml(self) -> str:
        """Render well-formed XML; `from_xml` restores the same prompt for any text."""
        items = [render_element(item.type, item.content, item.name) for item in self.context]
        return "".join([render_head(self.system_prompt), *items, render_tail(self.instructions)])

    @classmethod
    def from_xml(cls, text: str) -> UnifiedPrompt:
        """Parse the output of `to_xml`; raise `MalformedPrompt` for anything else."""
        return _PromptParser().parse(text)

    def to_json(self) -> str:
        """Render JSON of the published schema, in ASCII, so that lone surrogates survive."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str | bytes) -> UnifiedPrompt:
        """Parse JSON of the published schema.

        Properties that the schema does not name are ignored.
        """
        try:
            return read_value(json.loads(text), cls)
        except (ValueError, RecursionError, msgspec.ValidationError) as error:
            raise MalformedPrompt(f"not a valid JSON prompt: {error}") from error

    def to_dict(self) -> dict[str, object]:
        """Return plain data of the published schema, without absent fields."""
        data: dict[str, object] = {
            "system_prompt": self.system_prompt,
            "context": [_item_to_dict(item) for item in self.context],
            "instructions": self.instructions,
        }
        if self.system_prompt is None:
            del data["system_prompt"]
        return data


def _item_to_dict(item: ContextItem) -> dict[str, str]:
    name = {} if item.name is None else {"name": item.name}
    return {"type": item.type.value, **name, "content": item.content}


def render_head(system_prompt: str | None) -> str:
    """Render everything before the first context item."""
    if system_prompt is None:
        return "<prompt>\n<context>\n"
    return f"<prompt>\n{render_element('system_prompt', system_prompt)}<context>\n"


def render_tail(instructions: str) -> str:
    """Render everything after the last context item."""
    return f"</context>\n{render_element('instructions', instructions)}</prompt>"


def render_element(tag: str, content: str, name: str | None = None) -> str:
    """Render one element on its own lines.

    No blank and no line end is added to its text.
    """
    attributes = ""
    # Names the parts of the element that are encoded
    escaped = []

    if name is not None:
        if not is_xml_safe(name):
            name = encode_forbidden(name)
            escaped.append("name")
        attributes = f" {_get_name_attribute(tag)}='{escape_attribute(name)}'"

    if not is_xml_safe(content):
        content = encode_forbidden(content)
        escaped.append("content")

    if escaped:
        attributes += f" escaped='{' '.join(escaped)}'"

    return f"<{tag}{attributes}>{escape_text(content)}</{tag}>\n"


def _get_name_attribute(tag: str) -> str:
    if tag == ItemType.FILE:
        return "path"
    return "name"


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
    """A strict parser for one prompt.

    It refuses document types, entities, and everything else that `to_xml` never writes.
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
            raise MalformedPrompt(f"not a valid XML prompt: {error}") from error

        if "instructions" not in self._fields:
            self._refuse("there are no instructions")
        return UnifiedPrompt(
            self._fields.get("system_prompt"), tuple(self._items), self._fields["instructions"]
        )

    def _handle_start(self, tag: str, attributes: dict[str, str]) -> None:
        """Check that an element is allowed here, and open it."""
        parent = self._open[-1] if self._open else ""
        if _PARENT.get(tag) != parent:
            self._refuse(
                f"<{tag}> is not allowed in <{parent}>" if parent else f"the root is <{tag}>"
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
        """Return name and content of an element with its escapes decoded."""
        attributes = dict(self._attributes)
        escaped = _ESCAPED_FORMS.get(attributes.pop("escaped", ""))
        if tag in tuple(ItemType):
            name = attributes.pop(_get_name_attribute(tag), None)
        else:
            name = None

        if escaped is None or attributes or ("name" in escaped and name is None):
            self._refuse(f"<{tag}> has an unknown attribute")

        try:
            if name is not None and "name" in escaped:
                name = decode_forbidden(name)
            if "content" in escaped:
                content = decode_forbidden(content)
            return name, content
        except ValueError:
            self._refuse(f"<{tag}> has an invalid escape")

    def _refuse(self, what: str) -> NoReturn:
        raise MalformedPrompt(
            f"not a valid XML prompt: {what} (line {self._parser.CurrentLineNumber})"
        )
