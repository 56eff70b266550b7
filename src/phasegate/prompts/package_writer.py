"""Write `WPnn.md` from a package and its plan.

`package_reader` reads it back from the front matter alone.

The texts are in `work_package/WP.md`, `work_package/lines.toml` and `profiles/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from shlex import quote
from tomllib import loads

import msgspec
import yaml

from phasegate.core.detection.one_file import make_one_file_command
from phasegate.core.plan.package_fields import serialize_package
from phasegate.core.plan.work_package import WorkPackage, split_evenly
from phasegate.core.prompt.template import fill_placeholders
from phasegate.core.text.markdown_lines import collapse_whitespace, iter_markdown_lines
from phasegate.core.text.yaml_nodes import split_front_matter
from phasegate.prompts.profiles import Profile
from phasegate.prompts.shipped_texts import read_shipped
from phasegate.typed import read_value


class PackagePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a document beyond its package: the feature, and how it will be run."""

    created: str
    base_branch: str
    commands: Mapping[str, str]
    feature_state: str = "IMPLEMENT"
    requirement_texts: Mapping[str, str] = msgspec.field(default_factory=dict)
    # Headings of each document, by its name
    documents: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    opens_pull_request: bool = False
    profile: Profile | None = None
    layout: str = ""
    pinned: str = ""
    language_package: str = ""
    timeout_s: int = 1800
    review_cycles: int = 5


class _LineTemplates:
    """The lines of `lines.toml`, by name."""

    def __init__(self, text: str) -> None:
        table = loads(text)
        self.document_titles = read_value(table.pop("documents"), dict[str, str])
        self._lines = read_value(table, dict[str, str])

    def render(self, name: str, **values: str) -> str:
        """Return a line with its placeholders filled.

        A multi-line text starts on its own line in the file.
        """
        return fill_placeholders(self._lines[name].strip("\n"), values)

    def render_each(self, name: str, texts: Iterable[str], empty: str) -> str:
        """Render one line for each text, or the line for an empty list."""
        return "\n".join(
            self.render(name, TEXT=collapse_whitespace(text)) for text in texts
        ) or self.render(empty)


@cache
def load_line_templates() -> _LineTemplates:
    """Load the lines of the document."""
    return _LineTemplates(read_shipped("work_package/lines.toml"))


def render_package(package: WorkPackage, plan: PackagePlan) -> str:
    """Render the document: front matter, followed by the same content as prose for the agent."""
    front = yaml.safe_dump(
        {**serialize_package(package), "audience": ["agents", "developers"]},
        default_flow_style=None,
        sort_keys=False,
        allow_unicode=True,
        width=10_000_000,
    )
    return f"---\n{front}---\n\n{_render_body(package, plan)}"


def _render_body(package: WorkPackage, plan: PackagePlan) -> str:
    return fill_placeholders(read_shipped("work_package/WP.md"), _build_values(package, plan))


def _build_values(package: WorkPackage, plan: PackagePlan) -> dict[str, str]:
    return {
        **_build_feature_values(package, plan),
        **_build_deliverable_values(package),
        **_build_constraint_values(package, plan),
        **_build_run_values(package, plan),
    }


def _build_feature_values(package: WorkPackage, plan: PackagePlan) -> dict[str, str]:
    """Return the template values about the package and its feature."""
    render = load_line_templates().render
    slug = package.feature_slug
    title = collapse_whitespace(package.feature_title)
    return {
        "WP_ID": package.work_package_id,
        "TITLE": collapse_whitespace(package.title),
        "MISSION": _to_paragraph(package.mission)
        or render("mission", TITLE=collapse_whitespace(package.title).rstrip(".")),
        "FEATURE_SLUG": slug,
        "FEATURE": render("feature", SLUG=slug, TITLE=title) if title else slug,
        "FEATURE_STATE": plan.feature_state,
        "BRANCH": package.branch,
        "WORKTREE": "`, `".join(_list_worktrees(package)),
        "BASE_BRANCH": plan.base_branch,
        "CREATED": plan.created,
        "DOCUMENTS": _render_documents(plan),
    }


def _list_worktrees(package: WorkPackage) -> list[str]:
    """Return the folder of each agent's checkout."""
    if package.num_agents == 1:
        return [package.worktree]
    return [f"{package.worktree}-agent{index}" for index in range(package.num_agents)]


def _to_paragraph(text: str) -> str:
    """Return free text as one paragraph, so that it cannot start a section."""
    line = collapse_whitespace(text)
    if line.startswith(("#", "```", "~~~", "<", "-", ">", "|")):
        return f"\\{line}"
    return line


def _build_deliverable_values(package: WorkPackage) -> dict[str, str]:
    """Return the template values about files and scope."""
    render = load_line_templates().render
    deliverables = package.deliverables
    first = next(iter(deliverables.all), render("first_deliverable"))
    return {
        "CODE": _render_deliverables(package, deliverables.code),
        "TESTS": _render_deliverables(package, deliverables.tests),
        "DOCUMENTATION": _render_deliverables(package, deliverables.documentation),
        "FIRST_FILE_FOR_SHELL": quote(first),
        "FILE_SCOPE": "\n".join(package.file_scope),
        "EXECUTABLE": render("executable", FILES=_render_code_list(package.executable_files))
        if package.executable_files
        else render("executable_none"),
    }


def _render_deliverables(package: WorkPackage, paths: tuple[str, ...]) -> str:
    """Render a list of deliverables with their descriptions."""
    render = load_line_templates().render
    described = {
        path: collapse_whitespace(text)
        for path, text in package.descriptions.items()
        if text.strip()
    }
    lines = [
        render("deliverable", PATH=path, TEXT=described[path])
        if path in described
        else render("deliverable_plain", PATH=path)
        for path in paths
    ]
    return "\n".join(lines) or render("no_deliverables")


def _render_code_list(paths: Iterable[str]) -> str:
    return ", ".join(f"`{path}`" for path in paths)


def _build_constraint_values(package: WorkPackage, plan: PackagePlan) -> dict[str, str]:
    """Return the template values about requirements, rules and dependencies."""
    templates = load_line_templates()
    allowed = package.allowed_dependencies
    forbidden = package.forbidden_dependencies
    return {
        "REQUIREMENTS": _render_requirements(package, plan),
        "REQUIREMENT_EXAMPLE": next(
            iter(package.requirements), templates.render("requirement_example")
        ),
        "ARCHITECTURE_RULES": templates.render_each("rule", package.architecture_rules, "no_rules"),
        "QUALITY_GATES": _render_quality_gates(package, plan),
        "MAY_ADD": ", ".join(allowed) or templates.render("may_add_none"),
        "MAY_NOT_ADD": ", ".join(forbidden) or templates.render("may_not_add_rest"),
        "MAY_NOT_CHANGE": ", ".join(package.frozen_files)
        or templates.render("may_not_change_none"),
    }


def _render_requirements(package: WorkPackage, plan: PackagePlan) -> str:
    render = load_line_templates().render
    unknown = render("requirement_unknown")
    texts = {
        id_: collapse_whitespace(plan.requirement_texts.get(id_, "")) or unknown
        for id_ in package.requirements
    }
    return "\n".join(
        render("requirement", ID=id_, TEXT=text) for id_, text in texts.items()
    ) or render("no_requirements")


def _render_quality_gates(package: WorkPackage, plan: PackagePlan) -> str:
    """Render the commands that must pass, and name those that are missing."""
    templates = load_line_templates()
    least = package.checks.coverage_min
    lines = []
    absent = []

    for purpose in ("lint", "typecheck", "test", "build"):
        command = plan.commands.get(purpose)
        if not command:
            absent.append(purpose)
        elif purpose == "test" and least:
            lines.append(
                templates.render("gate_test_coverage", COMMAND=command, PERCENT=f"{least:g}")
            )
        else:
            lines.append(templates.render(f"gate_{purpose}", COMMAND=command))

    one_file = make_one_file_command(
        plan.commands.get("test", ""), next(iter(package.deliverables.tests), "")
    )
    if package.deliverables.tests and one_file:
        lines.append(templates.render("gate_one_file", COMMAND=one_file))

    lines += [
        templates.render("rule", TEXT=collapse_whitespace(rule)) for rule in package.quality_rules
    ]
    if absent:
        lines.append(templates.render("gate_not_asked", NAMES=", ".join(absent)))

    return "\n".join(lines)


def _render_documents(plan: PackagePlan) -> str:
    """Render the documents to read, with their headings."""
    templates = load_line_templates()
    lines = []
    for number, (path, headings) in enumerate(plan.documents.items(), 1):
        name = path.rpartition("/")[2]
        title = templates.document_titles.get(name.lower(), name)
        kind = "document" if headings else "document_plain"
        lines.append(templates.render(kind, NUMBER=str(number), TITLE=title, PATH=path))
        lines += [
            templates.render("document_point", TEXT=collapse_whitespace(heading))
            for heading in headings
        ]

    return "\n".join(lines) or templates.render("no_documents")


def _build_run_values(package: WorkPackage, plan: PackagePlan) -> dict[str, str]:
    """Return the template values about limits, commands and coordination."""
    render = load_line_templates().render
    return {
        "TASKS": ", ".join(package.tasks) or render("tasks_none"),
        "DEPENDENCIES": ", ".join(package.dependencies) or render("none"),
        "COMMANDS": _render_commands(plan),
        "REVIEW_CYCLES": str(plan.review_cycles),
        "TIMEOUT_S": str(plan.timeout_s),
        "TIMEOUT_MIN": f"{plan.timeout_s / 60:.3g}",
        "TERM_S": f"{plan.timeout_s * 0.9:.0f}",
        "GRACE_S": f"{plan.timeout_s * 0.1:.0f}",
        "IN_REVIEW": render("in_pull_request" if plan.opens_pull_request else "in_review"),
        "PROFILE": _render_profile(plan),
        "COORDINATION": _render_coordination(package),
    }


def _render_commands(plan: PackagePlan) -> str:
    render = load_line_templates().render
    # The checks themselves are listed under the quality gates
    order = ("setup", "coverage")
    known = [
        f"{render(f'command_{name}')}\n{plan.commands[name]}"
        for name in order
        if plan.commands.get(name)
    ]
    return "\n\n".join([*known, render("commands_above" if plan.commands else "no_commands")])


def _render_profile(plan: PackagePlan) -> str:
    """Render the profile's section with a blank line after it; empty without a profile."""
    profile = plan.profile
    if profile is None:
        return ""

    names = {
        "PINNED": plan.pinned or profile.pinned,
        "PACKAGE": plan.language_package or profile.package,
    }
    filled = fill_placeholders(
        read_shipped("profiles/PROFILE.md"),
        {
            "TITLE": profile.title,
            "LAYOUT": (plan.layout or profile.layout).strip("\n").replace("```", "'''"),
            "CONSTRAINTS": "\n".join(
                f"- {fill_placeholders(line, names)}" for line in profile.constraints
            ),
            "COMMANDS": "\n".join(
                [
                    *([load_line_templates().render("commands_above")] if plan.commands else []),
                    *_select_language_commands(
                        plan,
                        (fill_placeholders(line, names) for line in profile.reference_commands),
                    ),
                ]
            ),
            "STYLE": "\n".join(f"- {line}" for line in profile.style),
        },
    )

    return f"{filled}\n"


def _select_language_commands(plan: PackagePlan, known: Iterable[str]) -> Iterator[str]:
    """Yield the profile's other commands that use the project's tools, or all if none is known.

    Leave out those for the whole project (`mypy .`): the project's own command names its target.
    """
    own = [line for line in plan.commands.values() if line]
    used_words = {word for line in own for word in line.replace("/", " ").split()}

    for line in known:
        command = line.partition(" # ")[0]
        is_further = _find_tool(command) in used_words and not command.endswith(" .")
        if command not in own and (not own or is_further):
            yield line


def _find_tool(command: str) -> str:
    """Return the tool that a command runs.

    For example `pytest` for `python -m pytest -q`, or `lint` for `npm run lint`.
    """
    words = command.split()
    if words[:2] in (["python", "-m"], ["npm", "run"]):
        return words[2]
    return words[0]


def has_all_sections(document: str) -> bool:
    """Return True if a document has every section that agents rely on."""
    expected = read_shipped("work_package/WP.md").replace("{{PROFILE}}", "")
    return not _find_missing_sections(document, expected)


def complete_document(document: str, package: WorkPackage, plan: PackagePlan) -> str:
    """Add a missing heading and missing sections to a document of another author.

    Its text stays unchanged.
    """
    expected = _render_body(package, plan)
    missing = "".join(_find_missing_sections(document, expected))
    if not missing:
        return document

    body = split_front_matter(document).body
    lines = iter_markdown_lines(body)
    if not any(line.fence_info is None and line.text.startswith("# ") for line in lines):
        heading = expected.partition("\n")[0]
        document = f"{document.removesuffix(body)}{heading}\n\n{body.lstrip()}"

    return "{}\n\n{}\n".format(document.rstrip("\n"), missing.rstrip("\n"))


def _find_missing_sections(document: str, expected: str) -> list[str]:
    """Return the sections of the expected body that a document does not have."""
    titles = [title for title, _ in _split_sections(document)]
    return [
        text
        for title, text in _split_sections(expected)
        if not any(_is_same_section(title, other) for other in titles)
    ]


def _split_sections(body: str) -> Iterator[tuple[str, str]]:
    """Yield the sections of a body, each with its title."""
    lines = body.splitlines(keepends=True)
    starts = [
        line.number - 1
        for line in iter_markdown_lines(body)
        if line.fence_info is None and line.text.startswith("## ")
    ]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield normalize_heading(lines[start]), "".join(lines[start:end])


def normalize_heading(line: str) -> str:
    """Return the title of a heading in lower case, without a remark in parentheses."""
    return collapse_whitespace(line.strip().lstrip("#").partition("(")[0]).casefold()


def _is_same_section(title: str, other: str) -> bool:
    return bool(other) and (title.startswith(other) or other.startswith(title))


def _render_coordination(package: WorkPackage) -> str:
    """Render how agents share the package's files."""
    render = load_line_templates().render
    if package.num_agents == 1:
        return render("coordination_alone")

    parts = split_evenly(package.deliverables.all, package.num_agents)
    lines = [
        render(
            "coordination_part" if part else "coordination_part_empty",
            INDEX=str(index),
            WORKTREE=worktree,
            FILES=_render_code_list(part),
        )
        for index, (part, worktree) in enumerate(zip(parts, _list_worktrees(package), strict=True))
    ]

    return render(
        "coordination_shared", COUNT=str(len(parts)), PARTS="\n".join(lines), BRANCH=package.branch
    )
