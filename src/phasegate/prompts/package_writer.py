"""`WPnn.md`, written from a package and its plan.

`package_reader` reads it back from the front matter alone.

No words are made here: they are in `work_package/WP.md`, `work_package/lines.toml` and `profiles/`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from shlex import quote
from tomllib import loads

import msgspec
import yaml

from phasegate.core.plan.package_fields import serialize_package
from phasegate.core.plan.work_package import WorkPackage, split_evenly
from phasegate.core.prompt.template import fill_placeholders
from phasegate.core.text.markdown_lines import collapse_whitespace, iter_markdown_lines
from phasegate.prompts.profiles import Profile
from phasegate.typed import read_value


class PackagePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a document says beyond its package: the feature around it and how it will be run."""

    created: str
    base_branch: str
    commands: Mapping[str, str]
    feature_state: str = "IMPLEMENT"
    requirement_texts: Mapping[str, str] = msgspec.field(default_factory=dict)
    documents: tuple[str, ...] = ()
    package_ids: tuple[str, ...] = ()
    profile: Profile | None = None
    layout: str = ""
    pinned: str = ""
    language_package: str = ""
    timeout_s: int = 1800
    review_cycles: int = 5


class _DocumentSummary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    points: tuple[str, ...]


class _LineTemplates:
    """The lines of `lines.toml`, by name."""

    def __init__(self, text: str) -> None:
        table = loads(text)
        self.documents = read_value(table.pop("documents"), dict[str, _DocumentSummary])
        self._lines = read_value(table, dict[str, str])

    def render(self, name: str, **values: str) -> str:
        """A line with its placeholders filled.

        Multi-line ones begin on a line of their own in the file.
        """
        return fill_placeholders(self._lines[name].strip("\n"), values)

    def render_each(self, name: str, texts: Iterable[str], empty: str) -> str:
        """One line a text, or the line that says there is none."""
        return "\n".join(
            self.render(name, TEXT=collapse_whitespace(text)) for text in texts
        ) or self.render(empty)


@cache
def _load_line_templates() -> _LineTemplates:
    return _LineTemplates(_read_shipped("work_package/lines.toml"))


@cache
def _read_shipped(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def render_package(package: WorkPackage, plan: PackagePlan) -> str:
    """The document: front matter, and below it the same in words for the agent.

    Reading gives the same package.
    """
    front = yaml.safe_dump(
        serialize_package(package),
        default_flow_style=None,
        sort_keys=False,
        allow_unicode=True,
        width=10_000_000,
    )
    return f"---\n{front}---\n\n{_render_body(package, plan)}"


def _render_body(package: WorkPackage, plan: PackagePlan) -> str:
    return fill_placeholders(_read_shipped("work_package/WP.md"), _build_values(package, plan))


def _build_values(package: WorkPackage, plan: PackagePlan) -> dict[str, str]:
    return {
        **_build_feature_values(package, plan),
        **_build_deliverable_values(package),
        **_build_constraint_values(package, plan),
        **_build_run_values(package, plan),
    }


def _build_feature_values(package: WorkPackage, plan: PackagePlan) -> dict[str, str]:
    say = _load_line_templates().render
    slug = package.feature_slug
    title = collapse_whitespace(package.feature_title)
    return {
        "WP_ID": package.work_package_id,
        "TITLE": collapse_whitespace(package.title),
        "MISSION": _to_paragraph(package.mission)
        or say("mission", TITLE=collapse_whitespace(package.title).rstrip(".")),
        "FEATURE_SLUG": slug,
        "FEATURE": say("feature", SLUG=slug, TITLE=title) if title else slug,
        "FEATURE_STATE": plan.feature_state,
        "BRANCH": package.branch,
        "WORKTREE": package.worktree,
        "BASE_BRANCH": plan.base_branch,
        "CREATED": plan.created,
        "DOCUMENTS": _render_documents(plan),
    }


def _to_paragraph(text: str) -> str:
    """Free text as one paragraph, so that it cannot begin a section of its own."""
    line = collapse_whitespace(text)
    if line.startswith(("#", "`", "~", "<", "-", ">", "|")):
        return f"\\{line}"
    return line


def _build_deliverable_values(package: WorkPackage) -> dict[str, str]:
    say = _load_line_templates().render
    deliverables = package.deliverables
    first = next(iter(deliverables.all), say("first_deliverable"))
    return {
        "CODE": _render_deliverables(package, deliverables.code),
        "TESTS": _render_deliverables(package, deliverables.tests),
        "DOCUMENTATION": _render_deliverables(package, deliverables.documentation),
        "FIRST_FILE_FOR_SHELL": quote(first),
        "FIRST_FILE_AS_JSON": json.dumps(first, ensure_ascii=False),
        "FILE_SCOPE": "\n".join(package.file_scope),
        "EXECUTABLE": say("executable", FILES=_render_code_list(package.executable_files))
        if package.executable_files
        else say("executable_none"),
    }


def _render_deliverables(package: WorkPackage, paths: tuple[str, ...]) -> str:
    say = _load_line_templates().render
    described = {
        path: collapse_whitespace(text)
        for path, text in package.descriptions.items()
        if text.strip()
    }
    lines = [
        say("deliverable", PATH=path, TEXT=described[path])
        if path in described
        else say("deliverable_plain", PATH=path)
        for path in paths
    ]
    return "\n".join(lines) or say("no_deliverables")


def _render_code_list(paths: Iterable[str]) -> str:
    return ", ".join(f"`{path}`" for path in paths)


def _build_constraint_values(package: WorkPackage, plan: PackagePlan) -> dict[str, str]:
    words = _load_line_templates()
    allowed = package.allowed_dependencies
    forbidden = package.forbidden_dependencies
    return {
        "REQUIREMENTS": _render_requirements(package, plan),
        "REQUIREMENT_EXAMPLE": next(
            iter(package.requirements), words.render("requirement_example")
        ),
        "ARCHITECTURE_RULES": words.render_each("rule", package.architecture_rules, "no_rules"),
        "QUALITY_GATES": _render_quality_gates(package, plan),
        "MAY_ADD": ", ".join(allowed) or words.render("may_add_none"),
        "MAY_NOT_ADD": ", ".join(forbidden) or words.render("may_not_add_rest"),
        "MAY_NOT_CHANGE": ", ".join(package.frozen_files) or words.render("may_not_change_none"),
    }


def _render_requirements(package: WorkPackage, plan: PackagePlan) -> str:
    say = _load_line_templates().render
    unknown = say("requirement_unknown")
    texts = {
        id_: collapse_whitespace(plan.requirement_texts.get(id_, "")) or unknown
        for id_ in package.requirements
    }
    return "\n".join(say("requirement", ID=id_, TEXT=text) for id_, text in texts.items()) or say(
        "no_requirements"
    )


def _render_quality_gates(package: WorkPackage, plan: PackagePlan) -> str:
    words = _load_line_templates()
    least = package.checks.coverage_min
    lines = []
    absent = []

    for purpose in ("lint", "typecheck", "test", "build"):
        command = plan.commands.get(purpose)
        if not command:
            absent.append(purpose)
        elif purpose == "test" and least:
            lines.append(words.render("gate_test_coverage", COMMAND=command, PERCENT=f"{least:g}"))
        else:
            lines.append(words.render(f"gate_{purpose}", COMMAND=command))

    lines += [
        words.render("rule", TEXT=collapse_whitespace(rule)) for rule in package.quality_rules
    ]
    if absent:
        lines.append(words.render("gate_not_asked", NAMES=", ".join(absent)))

    return "\n".join(lines)


def _render_documents(plan: PackagePlan) -> str:
    words = _load_line_templates()
    if plan.package_ids:
        ends = {"FIRST": plan.package_ids[0], "LAST": plan.package_ids[-1]}
    else:
        ends = None

    lines = []
    for number, path in enumerate(plan.documents, 1):
        name = path.rpartition("/")[2]
        known = words.documents.get(name.lower(), _DocumentSummary(name, ()))
        points = [
            fill_placeholders(point, ends or {})
            for point in known.points
            if ends or "{{" not in point
        ]
        kind = "document" if points else "document_plain"
        lines.append(words.render(kind, NUMBER=str(number), TITLE=known.title, PATH=path))
        lines += [words.render("document_point", TEXT=point) for point in points]

    return "\n".join(lines) or words.render("no_documents")


def _build_run_values(package: WorkPackage, plan: PackagePlan) -> dict[str, str]:
    say = _load_line_templates().render
    return {
        "TASKS": ", ".join(package.tasks) or say("tasks_none"),
        "DEPENDENCIES": ", ".join(package.dependencies) or say("none"),
        "COMMANDS": _render_commands(plan),
        "REVIEW_CYCLES": str(plan.review_cycles),
        "TIMEOUT_S": str(plan.timeout_s),
        "TIMEOUT_MIN": f"{plan.timeout_s / 60:.3g}",
        "TERM_S": f"{plan.timeout_s * 0.9:.0f}",
        "GRACE_S": f"{min(30.0, plan.timeout_s * 0.1):.0f}",
        "PROFILE": _render_profile(plan),
        "COORDINATION": _render_coordination(package),
    }


def _render_commands(plan: PackagePlan) -> str:
    say = _load_line_templates().render
    order = ("setup", "typecheck", "lint", "test", "coverage", "build")
    known = [
        f"{say(f'command_{name}')}\n{plan.commands[name]}"
        for name in order
        if plan.commands.get(name)
    ]
    return "\n\n".join(known) or say("no_commands")


def _render_profile(plan: PackagePlan) -> str:
    """The profile's own section, with a blank line behind it; nothing without a profile."""
    profile = plan.profile
    if profile is None:
        return ""

    names = {
        "PINNED": plan.pinned or profile.pinned,
        "PACKAGE": plan.language_package or profile.package,
    }
    filled = fill_placeholders(
        _read_shipped("profiles/PROFILE.md"),
        {
            "TITLE": profile.title,
            "LAYOUT": (plan.layout or profile.layout).strip("\n").replace("```", "'''"),
            "CONSTRAINTS": "\n".join(
                f"- {fill_placeholders(line, names)}" for line in profile.constraints
            ),
            "COMMANDS": "\n".join(
                _select_language_commands(
                    plan, (fill_placeholders(one, names) for one in profile.reference_commands)
                )
            ),
            "STYLE": "\n".join(f"- {line}" for line in profile.style),
        },
    )

    return f"{filled}\n"


def _select_language_commands(plan: PackagePlan, known: Iterable[str]) -> Iterator[str]:
    """The commands that will really be run, then those of the profile that use the same tools.

    All of them without.
    """
    own = [line for line in plan.commands.values() if line]
    words = {word for line in own for word in line.replace("/", " ").split()}
    for name, line in plan.commands.items():
        if line:
            yield f"{line} {_load_line_templates().render('command_' + name.partition(' ')[0])}"

    for line in known:
        command = line.partition(" # ")[0]
        if command not in own and (not own or _find_tool(command) in words):
            yield line


def _find_tool(command: str) -> str:
    """The program that a command is about.

    `pytest` of `python -m pytest -q`, `lint` of `npm run lint`.
    """
    words = command.split()
    if words[:2] in (["python", "-m"], ["npm", "run"]):
        return words[2]
    return words[0]


def has_all_sections(document: str) -> bool:
    """Whether a document has every section that agents rely on."""
    there = [
        _normalize_heading(line.text)
        for line in iter_markdown_lines(document)
        if line.fence_info is None and line.text.startswith("## ")
    ]
    wanted = _split_sections(_read_shipped("work_package/WP.md").replace("{{PROFILE}}", ""))
    return all(any(_is_same_section(title, own) for own in there) for title, _ in wanted)


def complete_document(document: str, package: WorkPackage, plan: PackagePlan) -> str:
    """A document that somebody else wrote, with the sections that it lacks behind its own text,
    kept to the letter.
    """
    there = [
        _normalize_heading(line.text)
        for line in iter_markdown_lines(document)
        if line.fence_info is None and line.text.startswith("## ")
    ]
    lacking = [
        text
        for title, text in _split_sections(_render_body(package, plan))
        if not any(_is_same_section(title, own) for own in there)
    ]
    if not lacking:
        return document

    return f"{document.rstrip(chr(10))}\n\n{''.join(lacking)}".rstrip("\n") + "\n"


def _split_sections(body: str) -> Iterator[tuple[str, str]]:
    """The sections of a body, each with its title."""
    lines = body.splitlines(keepends=True)
    starts = [
        one.number - 1
        for one in iter_markdown_lines(body)
        if one.fence_info is None and one.text.startswith("## ")
    ]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield _normalize_heading(lines[start]), "".join(lines[start:end])


def _normalize_heading(line: str) -> str:
    return collapse_whitespace(line.strip().lstrip("#").partition("(")[0]).casefold()


def _is_same_section(title: str, own: str) -> bool:
    return bool(own) and (title.startswith(own) or own.startswith(title))


def _render_coordination(package: WorkPackage) -> str:
    say = _load_line_templates().render
    if package.num_agents == 1:
        return say("coordination_alone")

    parts = split_evenly(package.deliverables.all, package.num_agents)
    lines = [
        say("coordination_part", INDEX=str(index), FILES=_render_code_list(part))
        if part
        else say("coordination_part_empty", INDEX=str(index))
        for index, part in enumerate(parts)
    ]

    return say(
        "coordination_shared", COUNT=str(len(parts)), PARTS="\n".join(lines), BRANCH=package.branch
    )
