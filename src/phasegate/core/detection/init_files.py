"""Render the files that `init` writes, and assign roles to agents."""

from __future__ import annotations

from phasegate.core.agents.harnesses import INSTALLABLE_HARNESSES, HarnessRow
from phasegate.core.text.light_json import parse_json
from phasegate.core.text.light_tuple import Light

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# Profiles that have a table in [checks]
PROFILES_WITH_CHECKS = ("rust", "go", "typescript", "python")
_WRITER_PHASES = ("plan", "implement", "archive")
_CRITIC_PHASES = ("challenge", "review")
_NO_AGENT = """\
# No agent program was found. Configure one:
# [agents.claude]
# harness = "claude_code"
# Or any program that reads a task envelope on stdin:
# [agents.mine]
# harness = "command"
# command = ["my-agent"]
"""


_COMMAND_NAMES = ("build", "test", "lint", "typecheck", "format", "check", "coverage")
# What a settings file contains -> the command that it configures
_COMMAND_BY_SETTING = {
    "pytest": "python -m pytest",
    "[tool.ruff": "ruff check .",
    "[tool.mypy": "mypy",
    "[tool.black": "black --check .",
    "[testenv": "tox",
    "nox.session": "nox",
}
_RULE_WORDS = frozenset(
    ("must", "should", "please", "use", "run", "add", "write", "never", "always", "not", "keep")
)
# First words of a paragraph that is a rule
_IMPERATIVES = ("Always", "Avoid", "Follow", "Keep", "Never", "Use", "Write")
_MAX_CONVENTIONS = 12
_MAX_CONVENTION_CHARS = 200


class RepositoryFacts(Light):
    """Facts about a repository that `init` collected."""

    name: str
    # The first paragraph of the README
    description: str
    programs: tuple[str, ...]
    # Names of environment variables that are set
    variables: frozenset[str]
    # The language profile; empty if none fits
    kind: str
    language_title: str
    folders: tuple[str, ...]
    # Command lines that the manifests name
    commands: tuple[str, ...] = ()
    # Sentences of CONTRIBUTING
    conventions: tuple[str, ...] = ()


def find_harness_rows(programs: Sequence[str]) -> list[HarnessRow]:
    """Return the harnesses of these programs, in order of preference."""
    return [row for row in INSTALLABLE_HARNESSES.values() if row.program in programs]


def assign_roles(agents: Sequence[str]) -> dict[str, str]:
    """Assign an agent to each role; with two agents, critic and writer differ."""
    if not agents:
        return {}

    if len(agents) > 1:
        critic = agents[1]
    else:
        critic = agents[0]

    return {**dict.fromkeys(_WRITER_PHASES, agents[0]), **dict.fromkeys(_CRITIC_PHASES, critic)}


def render_config(facts: RepositoryFacts) -> str:
    """Render the configuration file.

    Agents and roles are set; the commands of the profile are only shown, so that the profile keeps
    deciding them.
    """
    head = (
        "# Settings of Phasegate for this repository. `phasegate config show` lists all of them.\n"
    )
    return "\n".join([head, render_agents(facts), *_render_checks(facts)])


def render_agents(facts: RepositoryFacts) -> str:
    """Render the tables of the installed agents and their roles."""
    rows = find_harness_rows(facts.programs)
    if not rows:
        return _NO_AGENT

    tables = [_render_agent(row, facts.variables) for row in rows]
    roles = assign_roles([row.default_agent for row in rows])
    lines = "".join(f'{role} = "{agent}"\n' for role, agent in roles.items())

    return "\n".join([*tables, f"[roles]\n{lines}"])


def _render_agent(row: HarnessRow, set_variables: frozenset[str]) -> str:
    names = ", ".join(f'"{name}"' for name in row.variables if name in set_variables)
    passed = f"env = [{names}]  # names of variables to pass; never a value\n" if names else ""
    return f'[agents.{row.default_agent}]\nharness = "{row.kind}"\n{passed}'


def _render_checks(facts: RepositoryFacts) -> list[str]:
    """Render the commented check table of a new phasegate.toml."""
    if not facts.kind:
        return [
            "# The kind of project was not detected."
            " `phasegate discover` lets an agent find its tests, or:\n"
            '# [checks.project]\n# root = ""\n# setup = "..."\n# test = "..."\n'
        ]

    head = (
        f"# {facts.language_title} was detected."
        " `phasegate check` finds the commands, tries them on a clean checkout, and shows\n"
        "# why each was chosen. A command that is set here replaces the found one; an empty one"
        " removes it.\n"
    )
    table = f"[checks.{facts.kind}]"
    if facts.kind not in PROFILES_WITH_CHECKS:
        table = f"# {table}"

    purposes = ("setup", "test", "lint", "typecheck")
    lines = "".join(f'# {purpose} = "..."\n' for purpose in purposes)
    return [f"{head}{table}\n{lines}"]


def render_project_description(template: str, facts: RepositoryFacts) -> str:
    """Render the project's description for agents; values are inserted unchanged, in one pass."""
    values = {
        "name": facts.name,
        "about": facts.description or "<!-- What is this project, and who uses it? -->",
        "language": facts.language_title or "<!-- Which language, which versions? -->",
        "commands": "\n".join(f"- `{line}`" for line in facts.commands)
        or "<!-- How is it built and tested? `phasegate check` shows what it found. -->",
        "conventions": "".join(f"- {line}\n" for line in facts.conventions),
        "folders": "\n".join(f"- `{folder}/`" for folder in facts.folders)
        or "<!-- Which folder has what? -->",
    }
    return template.format_map(values)


def list_commands(texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the commands that manifests name, by a simple scan; `check` finds the exact ones."""
    found = []
    try:
        manifest = parse_json(texts.get("package.json", "{}"))
    except (ValueError, RecursionError, StopIteration):
        manifest = {}
    scripts = manifest.get("scripts") if isinstance(manifest, dict) else None
    if isinstance(scripts, dict):
        found += [f"npm run {name}" for name in _COMMAND_NAMES if name in scripts]

    settings = "".join(
        texts.get(name, "") for name in ("pyproject.toml", "tox.ini", "setup.cfg", "noxfile.py")
    )
    found += [command for mark, command in _COMMAND_BY_SETTING.items() if mark in settings]
    targets = {
        line.partition(":")[0] for line in texts.get("Makefile", "").splitlines() if ":" in line
    }
    found += [f"make {name}" for name in _COMMAND_NAMES if name in targets]
    return tuple(found)


def list_conventions(guidelines: str) -> tuple[str, ...]:
    """Return the rules of a CONTRIBUTING file, shortened: list items, and imperative paragraphs."""
    found = []
    for block in guidelines.split("\n\n"):
        if "".join(block.split()[:1]) in _IMPERATIVES:
            found.append(" ".join(block.split()))
            continue
        for line in block.splitlines():
            text = line.strip()
            words = text.lstrip("-*+ ").strip()
            # A command in backticks is not a rule
            prose = " ".join(words.lower().split("`")[::2])
            if text[:2] in ("- ", "* ", "+ ") and not _RULE_WORDS.isdisjoint(prose.split()):
                found.append(words)
    return tuple(rule[:_MAX_CONVENTION_CHARS] for rule in found[:_MAX_CONVENTIONS])


def extract_first_paragraph(readme: str) -> str:
    """Return the first paragraph of a README on one line, without headings, badges or code."""
    words: list[str] = []

    for line in readme.splitlines():
        text = line.strip()
        if text.startswith(("#", "![", "[![", "<", "```", "===", "---", "|", ">")) or not text:
            if words:
                break
            continue

        words.append(text)

    return _end_at_sentence(" ".join(words)[:600])


def _end_at_sentence(text: str) -> str:
    """Return a text without its last sentence if that one only introduces a list."""
    if not text.endswith(":"):
        return text

    return text[: text.rfind(". ") + 1] or text
