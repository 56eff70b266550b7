"""What kind of project lies in a folder, and its check commands: the profiles as `init` reads them.

`rules/profile.py` decides the same with the whole profiles; a test holds the two together. Reading TOML into typed
structures costs ten times as much as all else that `init` does.
"""

from __future__ import annotations

import os

from phasegate.rules.light import Light
from phasegate.rules.plain_json import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LARGEST_ROOT_FILE_BYTES = 1_000_000


class Command(Light):
    """A command, and the files of which one must be there, each with the entry that it must have."""

    run: str
    needs: tuple[tuple[str, str], ...]


class Kind(Light):
    """A kind of project: how it is told, and what it offers for each purpose."""

    name: str
    title: str
    detect: frozenset[str]
    hints: frozenset[str]
    commands: Mapping[str, tuple[Command, ...]]


def kind_of(names: frozenset[str]) -> Kind | None:
    """The first kind of which a telling file is there; else the first of which a hint is."""
    kinds = [*_kinds()]
    telling = (kind for kind in kinds if kind.detect & names)
    hinting = (kind for kind in kinds if kind.hints & names)
    return next(telling, None) or next(hinting, None)


def commands_in(root: str, names: frozenset[str], kind: Kind) -> dict[str, str]:
    """The commands that the project has, by purpose: of each purpose the first whose need is met."""
    found = {}
    for purpose, offered in kind.commands.items():
        for command in offered:
            if not command.needs or any(_is_met(root, names, file, key) for file, key in command.needs):
                found[purpose] = command.run
                break
    return found


def _kinds() -> Iterator[Kind]:
    path = os.path.join(os.path.dirname(__file__), "profiles", "quick.json")
    with open(path, encoding="utf-8") as file:
        rows = parse_json(file.read())
    assert isinstance(rows, list)
    for row in rows:
        commands = {purpose: tuple(_command(one) for one in offered) for purpose, offered in row["commands"].items()}
        yield Kind(row["name"], row["title"], frozenset(row["detect"]), frozenset(row["hints"]), commands)


def _command(row: dict[str, object]) -> Command:
    needs = row["needs"]
    assert isinstance(needs, list)
    return Command(str(row["run"]), tuple((need["file"], need["key"]) for need in needs))


def _is_met(root: str, names: frozenset[str], file: str, key: str) -> bool:
    if file not in names or not key:
        return file in names
    text = _text(os.path.join(root, file))
    if not file.endswith(".json") and (quick := has_toml_entry(text, key)) is not None:
        return quick
    value = _entries(text, file)
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value is not None and value != ""


def has_toml_entry(text: str, key: str) -> bool | None:
    """Whether a TOML text has an entry, by a look at its lines: None where only a parser can tell.

    A parser costs as much as the rest of `init` together; what people write in such files is nearly always plain.
    """
    if any(sign in f"\n{text}" for sign in _FOR_A_PARSER):
        return None
    table, found = "", False
    for line in text.splitlines():
        bare = line.split("#")[0].strip()
        if line[:1] == "[" and bare.endswith("]"):
            table = bare.strip("[]").strip()
            name = table
        elif line[:1].isalnum() and "=" in bare:
            name = f"{table}.{bare.partition('=')[0].strip()}".strip(".")
            if key.startswith(f"{name}."):
                return None  # an inline table, or a value where a table is asked for
        else:
            continue  # inside a list, a comment, or nothing
        found = found or name == key or name.startswith(f"{key}.")
    return found


# Strings of several lines, keys in quotes, empty strings: such lines may look like something else.
_FOR_A_PARSER = ('"""', "'''", '\n["', "\n['", '\n"', "\n'", '= ""', "= ''", '=""', "=''")


def _text(path: str) -> str:
    """The text of a file; one that cannot be read holds nothing."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > LARGEST_ROOT_FILE_BYTES:
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _entries(text: str, file: str) -> object:
    """What a JSON or TOML text holds; one that cannot be read holds nothing."""
    try:
        if file.endswith(".json"):
            return parse_json(text)
        from tomllib import loads

        return loads(text)
    except (ValueError, RecursionError, StopIteration):
        return None
