"""What `init` writes, given what it saw.

Which agent does what, the configuration, the project's description.
"""

from __future__ import annotations

from phasegate.core.agents.harnesses import INSTALLABLE_HARNESSES, HarnessRow
from phasegate.core.text.light_tuple import Light

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


# Those that have a table in [checks]
PROFILES_WITH_CHECKS = ("rust", "go", "typescript", "python")
_WRITER_PHASES = ("plan", "implement", "archive")
_CRITIC_PHASES = ("challenge", "review")
_NO_AGENT = """\
# No agent program was found. Name one:
# [agents.claude]
# harness = "claude_code"
# Or any program that reads a task envelope on stdin:
# [agents.mine]
# harness = "command"
# command = ["my-agent"]
"""


class RepositoryFacts(Light):
    """What a look at the repository found."""

    name: str
    # The first paragraph of its README
    description: str
    programs: tuple[str, ...]
    # Names of those that are set
    variables: frozenset[str]
    # The language profile; empty: none fits
    kind: str
    language_title: str
    folders: tuple[str, ...]


def find_harness_rows(programs: Sequence[str]) -> list[HarnessRow]:
    """What is known of these programs, in the order of preference."""
    return [row for row in INSTALLABLE_HARNESSES.values() if row.program in programs]


def assign_roles(agents: Sequence[str]) -> dict[str, str]:
    """Who does what. The critic is not the writer where there are two."""
    if not agents:
        return {}

    if len(agents) > 1:
        critic = agents[1]
    else:
        critic = agents[0]

    return {**dict.fromkeys(_WRITER_PHASES, agents[0]), **dict.fromkeys(_CRITIC_PHASES, critic)}


def render_config(seen: RepositoryFacts) -> str:
    """The configuration file.

    Agents and roles are set; the profile's commands are shown, and stay the profile's.
    """
    head = (
        "# Settings of Phasegate for this repository. `phasegate config show` lists all of them.\n"
    )
    return "\n".join([head, _render_agents(seen), *_render_checks(seen)])


def _render_agents(seen: RepositoryFacts) -> str:
    found = find_harness_rows(seen.programs)
    if not found:
        return _NO_AGENT

    tables = [_render_agent(program, seen.variables) for program in found]
    lines = "".join(
        f'{role} = "{agent}"\n'
        for role, agent in assign_roles([program.default_agent for program in found]).items()
    )

    return "\n".join([*tables, f"[roles]\n{lines}"])


def _render_agent(program: HarnessRow, set_variables: frozenset[str]) -> str:
    names = ", ".join(f'"{name}"' for name in program.variables if name in set_variables)
    if names:
        passed = f"env = [{names}]  # names of variables that it gets; never a value\n"
    else:
        passed = ""
    return f'[agents.{program.default_agent}]\nharness = "{program.kind}"\n{passed}'


def _render_checks(seen: RepositoryFacts) -> list[str]:
    if not seen.kind:
        return [
            "# The kind of project was not detected. `phasegate discover` lets an agent find out its tests, or:\n"
            '# [checks.project]\n# root = ""\n# setup = "..."\n# test = "..."\n'
        ]

    head = (
        f"# {seen.language_title} was detected. `phasegate check` finds the commands, tries them on a clean checkout, and says\n"
        "# why each was chosen. One that is set here replaces what it finds; an empty one drops it.\n"
    )
    if seen.kind in PROFILES_WITH_CHECKS:
        table = f"[checks.{seen.kind}]"
    else:
        table = f"# [checks.{seen.kind}]"

    return [
        f"{head}{table}\n"
        + "".join(f'# {purpose} = "..."\n' for purpose in ("setup", "test", "lint", "typecheck"))
    ]


def render_project_description(template: str, seen: RepositoryFacts) -> str:
    """The project's description for agents. Values go in untouched, in one pass."""
    values = {
        "name": seen.name,
        "about": seen.description or "<!-- What is this project, and for whom? -->",
        "language": seen.language_title or "<!-- Which language, which versions? -->",
        "commands": "<!-- How is it built and tested? `phasegate check` shows what it found. -->",
        "folders": "\n".join(f"- `{folder}/`" for folder in seen.folders)
        or "<!-- What lies where? -->",
    }
    return template.format_map(values)


def extract_first_paragraph(readme: str) -> str:
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
