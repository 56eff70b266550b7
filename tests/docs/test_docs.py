"""The pages keep what they promise: commands and options exist, links lead somewhere, examples of settings load."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from phasegate.agents.scripted.scenario import load_scenario
from phasegate.config.load import load_config
from phasegate.core.plan.consistency import extract_anchors, to_anchor
from phasegate.core.text.markdown_lines import iter_markdown_lines
from phasegate.interfaces.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
HASHED = (
    " job trail 1",
    " domain chain 1",
)  # what a hash begins with, in the reference of the audit trail
ENDS = ("|", ">", "<", "&&", "||", ";", "&")
TABLES = re.compile(r"^\[(agents|roles|run|limits|checks|workflows|phases|paths)\b", re.M)
LINK = re.compile(r"\[[^\]\n]*(?:\n[^\]\n]*)?\]\(([^)\s]+)\)")


class Said(NamedTuple):
    """A command line on a page. `whole`: it is an example to be typed, not a mention in a sentence."""

    page: str
    line: int
    text: str
    whole: bool


def said_in(page: str, text: str) -> Iterator[Said]:
    """Every command line of ours on a page: in a code block at the start of a line, elsewhere in backticks."""
    for line in iter_markdown_lines(text):
        if line.fence_info is not None:
            found = re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ )*phasegate( [^:].*)?$", line.text.strip())
            if found:
                yield Said(page, line.number, found[1] or "", whole=True)
            continue
        mentions = (
            text for text in re.findall(r"`phasegate( [^`]*)`", line.text) if text not in HASHED
        )
        for mention in mentions:
            yield Said(
                page, line.number, re.sub(r"[\[\]]|\.\.\.|\(.*\)", " ", mention), whole=False
            )


def words_of(text: str) -> list[str]:
    """The arguments of a command line, up to where the shell takes over."""
    words = shlex.split(text, comments=True)
    end = next((at for at, word in enumerate(words) if word in ENDS), len(words))
    return words[:end]


def mistake_in(said: Said) -> str | None:
    """What the command line would object to; values are not looked at, only whether something takes them."""
    command: click.Command = app
    words, context = words_of(said.text), click.Context(app, info_name="phasegate")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        inner = command.get_command(context, words[0])
        if inner is None:
            return f"there is no command {words[0]!r}"
        command, context, words = (
            inner,
            click.Context(inner, parent=context, info_name=words[0]),
            words[1:],
        )
    try:
        values, left, _ = command.make_parser(context).parse_args([*words])
    except click.ClickException as error:
        return error.format_message()
    if left:
        return f"{left} is too much"
    given = {
        name
        for name, value in values.items()
        if value not in (None, ()) and "UNSET" not in repr(value)
    }
    lacks = [
        parameter.name
        for parameter in command.params
        if parameter.required and parameter.name not in given
    ]
    is_help = values.get("help") is True
    return f"{lacks} is missing" if lacks and said.whole and not is_help else None


SAID = [
    said
    for page in PAGES
    for said in said_in(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"))
]


def test_a_page_with_a_wrong_command_would_be_found() -> None:
    page = (
        "```\n$ phasegate runn feature\nphasegate run --stepp\nphasegate resolve\n"
        "A=1 phasegate status a b c d  # x\n```\n"
        "`phasegate plan shw` and `phasegate run --step`\n```\nphasegate run feature 'x' | cat\n```\n"
    )
    mistakes = [mistake_in(said) for said in said_in("page.md", page)]
    assert [mistake is not None for mistake in mistakes] == [
        True,
        True,
        True,
        True,
        True,
        False,
        False,
    ]


def test_every_command_on_a_page_exists_with_its_options() -> None:
    assert len(SAID) > 100
    wrong = [
        f"{said.page}:{said.line}: phasegate{said.text}: {why}"
        for said in SAID
        if (why := mistake_in(said))
    ]
    assert not wrong, "\n".join(wrong)


def links_in(text: str) -> Iterator[str]:
    prose = "\n".join(
        re.sub(r"`[^`]*`", "", line.text) if line.fence_info is None else ""
        for line in iter_markdown_lines(text)
    )
    return (target for target in LINK.findall(prose) if not re.match(r"[a-z]+:", target))


def dead_links(page: Path, text: str) -> list[str]:
    return [target for target in links_in(text) if not _leads_somewhere(page, target)]


def _leads_somewhere(page: Path, target: str) -> bool:
    path, _, heading = target.partition("#")
    found = page.parent / path if path else page
    if not found.exists():
        return False
    return not heading or to_anchor(heading) in extract_anchors(found.read_text(encoding="utf-8"))


def test_a_dead_link_would_be_found() -> None:
    page = ROOT / "README.md"
    good = "[a](CHANGELOG.md) [b](https://example.org) [c](CONTRIBUTING.md#dependencies)"
    text = f"{good} [d](docs/nothing.md)\n[e\nf](#no)\n"
    assert dead_links(page, text) == ["docs/nothing.md", "#no"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert not dead_links(page, page.read_text(encoding="utf-8"))


SETTINGS = [
    (page, text)
    for page in PAGES
    for text in re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    if TABLES.search(text)
]


@pytest.mark.parametrize(
    ("page", "text"), SETTINGS, ids=[str(page.relative_to(ROOT)) for page, _ in SETTINGS]
)
def test_every_example_of_settings_loads(page: Path, text: str, tmp_path: Path) -> None:
    named = set(re.findall(r'^fallback = "(\w+)"', text, re.M)) - set(
        re.findall(r"^\[agents\.(\w+)\]", text, re.M)
    )
    others = "".join(f'\n[agents.{name}]\nharness = "codex"\n' for name in named)
    (tmp_path / "phasegate.toml").write_text(text + others, encoding="utf-8")
    load_config(tmp_path, {"PHASEGATE_TRUST": "1"})


def test_every_package_is_in_the_architecture_and_says_what_it_contains() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    packages = [path.parent for path in (ROOT / "src/phasegate").rglob("*/__init__.py")]
    for package in packages:
        docstring = (package / "__init__.py").read_text(encoding="utf-8")
        assert docstring.startswith('"""'), package
    top = {package.name for package in packages if package.parent.name == "phasegate"}
    assert not {name for name in top if f"`{name}/`" not in page}
    for owner in ("engine", "core"):
        inner = {path.name for path in (ROOT / "src/phasegate" / owner).iterdir() if path.is_dir()}
        assert not {name for name in inner - {"__pycache__"} if name not in page}


def test_the_architecture_uses_the_names_of_the_code() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    request = page.partition("## A request")[2].partition("\n## ")[0]
    quoted = [
        part for part in re.findall(r"`([^`\n]+)`", request) if re.fullmatch(r"[\w./]+", part)
    ]
    sources = {
        path: path.read_text(encoding="utf-8") for path in (ROOT / "src/phasegate").rglob("*.py")
    }
    modules = {part for path in sources for part in (path.name, path.stem, path.parent.name)}
    defined = {*re.findall(r"^ *(?:def|class) (\w+)", "\n".join(sources.values()), re.M), *modules}
    words = {word for part in quoted for word in re.split(r"\W+", part) if word}
    other = {"COMMANDS", "py", "state", "json"}
    assert len(words) > 30
    assert words - defined - other == set()


def test_every_decision_has_a_number_of_its_own() -> None:
    numbers = [path.name.partition("-")[0] for path in (ROOT / "docs/adr").glob("0*.md")]
    assert len(numbers) == len(set(numbers)) > 20, sorted(numbers)


def test_the_stand_in_of_the_tutorial_is_a_valid_scenario() -> None:
    assert load_scenario(ROOT / "docs/tutorial/stand-in.toml").turns
