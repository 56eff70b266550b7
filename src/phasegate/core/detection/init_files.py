"""What `init` writes, given what it saw: which agent does what, the configuration, the project's description."""

from __future__ import annotations

from phasegate.core.agents.harnesses import KNOWN, HarnessRow
from phasegate.core.text.light_tuple import Light

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


PROFILES = ("rust", "go", "typescript", "python")  # those that have a table in [checks]
_WRITES, _CRITICISES = ("plan", "implement", "archive"), ("challenge", "review")
_NO_AGENT = """\
# No agent program was found. Name one:
# [agents.claude]
# harness = "claude_code"
# Or any program that reads a task envelope on stdin:
# [agents.mine]
# harness = "command"
# command = ["my-agent"]
"""


class SeenRepository(Light):
    """What a look at the repository found."""

    name: str
    about: str  # the first paragraph of its README
    programs: tuple[str, ...]
    variables: frozenset[str]  # names of those that are set
    kind: str  # the language profile; empty: none fits
    title: str
    folders: tuple[str, ...]


def rows_of(programs: Sequence[str]) -> list[HarnessRow]:
    """What is known of these programs, in the order of preference."""
    return [row for row in KNOWN.values() if row.program in programs]


def roles(agents: Sequence[str]) -> dict[str, str]:
    """Who does what. The critic is not the writer where there are two."""
    if not agents:
        return {}
    critic = agents[1] if len(agents) > 1 else agents[0]
    return {**dict.fromkeys(_WRITES, agents[0]), **dict.fromkeys(_CRITICISES, critic)}


def config_text(seen: SeenRepository) -> str:
    """The configuration file: agents and roles are set; the profile's commands are shown, and stay the profile's."""
    head = "# Settings of Phasegate for this repository. `phasegate config show` lists all of them.\n"
    return "\n".join([head, _agents(seen), *_checks(seen)])


def _agents(seen: SeenRepository) -> str:
    found = rows_of(seen.programs)
    if not found:
        return _NO_AGENT
    tables = [_agent(program, seen.variables) for program in found]
    lines = "".join(f'{role} = "{agent}"\n' for role, agent in roles([program.agent for program in found]).items())
    return "\n".join([*tables, f"[roles]\n{lines}"])


def _agent(program: HarnessRow, is_set: frozenset[str]) -> str:
    names = ", ".join(f'"{name}"' for name in program.variables if name in is_set)
    passed = f"env = [{names}]  # names of variables that it gets; never a value\n" if names else ""
    return f'[agents.{program.agent}]\nharness = "{program.kind}"\n{passed}'


def _checks(seen: SeenRepository) -> list[str]:
    if not seen.kind:
        return [
            "# The kind of project was not detected. `phasegate discover` lets an agent find out its tests, or:\n"
            '# [checks.project]\n# root = ""\n# setup = "..."\n# test = "..."\n'
        ]
    head = (
        f"# {seen.title} was detected. `phasegate check` finds the commands, tries them on a clean checkout, and says\n"
        "# why each was chosen. One that is set here replaces what it finds; an empty one drops it.\n"
    )
    table = f"[checks.{seen.kind}]" if seen.kind in PROFILES else f"# [checks.{seen.kind}]"
    return [
        f"{head}{table}\n" + "".join(f'# {purpose} = "..."\n' for purpose in ("setup", "test", "lint", "typecheck"))
    ]


def project_text(template: str, seen: SeenRepository) -> str:
    """The project's description for agents. Values go in untouched, in one pass."""
    values = {
        "name": seen.name,
        "about": seen.about or "<!-- What is this project, and for whom? -->",
        "language": seen.title or "<!-- Which language, which versions? -->",
        "commands": "<!-- How is it built and tested? `phasegate check` shows what it found. -->",
        "folders": "\n".join(f"- `{folder}/`" for folder in seen.folders) or "<!-- What lies where? -->",
    }
    return template.format_map(values)


def first_paragraph(readme: str) -> str:
    """What a README says first, on one line: no heading, badge, image, comment or code."""
    words: list[str] = []
    for line in readme.splitlines():
        text = line.strip()
        if text.startswith(("#", "![", "[![", "<", "```", "===", "---", "|", ">")) or not text:
            if words:
                break
            continue
        words.append(text)
    return " ".join(words)[:600]
