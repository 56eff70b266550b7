"""`WPnn.md`, written from a package and its plan. `package_reader` reads it back from the front matter alone.

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

from phasegate.core.plan.package_fields import write_fields
from phasegate.core.plan.work_package import WorkPackage, split
from phasegate.core.prompt.template import fill_all
from phasegate.core.text.markdown_lines import lines_of, squeeze
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


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    points: tuple[str, ...]


class _Words:
    """The lines of `lines.toml`, by name."""

    def __init__(self, text: str) -> None:
        table = loads(text)
        self.documents = read_value(table.pop("documents"), dict[str, _Document])
        self._lines = read_value(table, dict[str, str])

    def say(self, name: str, **values: str) -> str:
        """A line with its placeholders filled; multi-line ones begin on a line of their own in the file."""
        return fill_all(self._lines[name].strip("\n"), values)

    def each(self, name: str, texts: Iterable[str], empty: str) -> str:
        """One line a text, or the line that says there is none."""
        return "\n".join(self.say(name, TEXT=squeeze(text)) for text in texts) or self.say(empty)


@cache
def _words() -> _Words:
    return _Words(_shipped("work_package/lines.toml"))


@cache
def _shipped(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def write(package: WorkPackage, plan: PackagePlan) -> str:
    """The document: front matter, and below it the same in words for the agent. Reading gives the same package."""
    front = yaml.safe_dump(
        write_fields(package), default_flow_style=None, sort_keys=False, allow_unicode=True, width=10_000_000
    )
    return f"---\n{front}---\n\n{_body(package, plan)}"


def _body(package: WorkPackage, plan: PackagePlan) -> str:
    return fill_all(_shipped("work_package/WP.md"), _values(package, plan))


def _values(package: WorkPackage, plan: PackagePlan) -> dict[str, str]:
    return {
        **_feature_values(package, plan),
        **_deliverable_values(package),
        **_constraint_values(package, plan),
        **_run_values(package, plan),
    }


def _feature_values(package: WorkPackage, plan: PackagePlan) -> dict[str, str]:
    say = _words().say
    slug, title = package.feature_slug, squeeze(package.feature_title)
    return {
        "WP_ID": package.work_package_id,
        "TITLE": squeeze(package.title),
        "MISSION": _paragraph(package.mission) or say("mission", TITLE=squeeze(package.title).rstrip(".")),
        "FEATURE_SLUG": slug,
        "FEATURE": say("feature", SLUG=slug, TITLE=title) if title else slug,
        "FEATURE_STATE": plan.feature_state,
        "BRANCH": package.branch,
        "WORKTREE": package.worktree,
        "BASE_BRANCH": plan.base_branch,
        "CREATED": plan.created,
        "DOCUMENTS": _documents(plan),
    }


def _paragraph(text: str) -> str:
    """Free text as one paragraph, so that it cannot begin a section of its own."""
    line = squeeze(text)
    return f"\\{line}" if line.startswith(("#", "`", "~", "<", "-", ">", "|")) else line


def _deliverable_values(package: WorkPackage) -> dict[str, str]:
    say, deliverables = _words().say, package.deliverables
    first = next(iter(deliverables.all), say("first_deliverable"))
    return {
        "CODE": _deliverables(package, deliverables.code),
        "TESTS": _deliverables(package, deliverables.tests),
        "DOCUMENTATION": _deliverables(package, deliverables.documentation),
        "FIRST_FILE_FOR_SHELL": quote(first),
        "FIRST_FILE_AS_JSON": json.dumps(first, ensure_ascii=False),
        "FILE_SCOPE": "\n".join(package.file_scope),
        "EXECUTABLE": say("executable", FILES=_code_list(package.executable_files))
        if package.executable_files
        else say("executable_none"),
    }


def _deliverables(package: WorkPackage, paths: tuple[str, ...]) -> str:
    say = _words().say
    described = {path: squeeze(text) for path, text in package.descriptions.items() if text.strip()}
    lines = [
        say("deliverable", PATH=path, TEXT=described[path])
        if path in described
        else say("deliverable_plain", PATH=path)
        for path in paths
    ]
    return "\n".join(lines) or say("no_deliverables")


def _code_list(paths: Iterable[str]) -> str:
    return ", ".join(f"`{path}`" for path in paths)


def _constraint_values(package: WorkPackage, plan: PackagePlan) -> dict[str, str]:
    words = _words()
    allowed, forbidden = package.allowed_dependencies, package.forbidden_dependencies
    return {
        "REQUIREMENTS": _requirements(package, plan),
        "REQUIREMENT_EXAMPLE": next(iter(package.requirements), words.say("requirement_example")),
        "ARCHITECTURE_RULES": words.each("rule", package.architecture_rules, "no_rules"),
        "QUALITY_GATES": _quality_gates(package, plan),
        "MAY_ADD": ", ".join(allowed) or words.say("may_add_none"),
        "MAY_NOT_ADD": ", ".join(forbidden) or words.say("may_not_add_rest"),
        "MAY_NOT_CHANGE": ", ".join(package.frozen_files) or words.say("may_not_change_none"),
    }


def _requirements(package: WorkPackage, plan: PackagePlan) -> str:
    say = _words().say
    unknown = say("requirement_unknown")
    texts = {id_: squeeze(plan.requirement_texts.get(id_, "")) or unknown for id_ in package.requirements}
    return "\n".join(say("requirement", ID=id_, TEXT=text) for id_, text in texts.items()) or say("no_requirements")


def _quality_gates(package: WorkPackage, plan: PackagePlan) -> str:
    words, least = _words(), package.checks.coverage_min
    lines, absent = [], []
    for purpose in ("lint", "typecheck", "test", "build"):
        command = plan.commands.get(purpose)
        if not command:
            absent.append(purpose)
        elif purpose == "test" and least:
            lines.append(words.say("gate_test_coverage", COMMAND=command, PERCENT=f"{least:g}"))
        else:
            lines.append(words.say(f"gate_{purpose}", COMMAND=command))
    lines += [words.say("rule", TEXT=squeeze(rule)) for rule in package.quality_rules]
    if absent:
        lines.append(words.say("gate_not_asked", NAMES=", ".join(absent)))
    return "\n".join(lines)


def _documents(plan: PackagePlan) -> str:
    words = _words()
    ends = {"FIRST": plan.package_ids[0], "LAST": plan.package_ids[-1]} if plan.package_ids else None
    lines = []
    for number, path in enumerate(plan.documents, 1):
        name = path.rpartition("/")[2]
        known = words.documents.get(name.lower(), _Document(name, ()))
        points = [fill_all(point, ends or {}) for point in known.points if ends or "{{" not in point]
        kind = "document" if points else "document_plain"
        lines.append(words.say(kind, NUMBER=str(number), TITLE=known.title, PATH=path))
        lines += [words.say("document_point", TEXT=point) for point in points]
    return "\n".join(lines) or words.say("no_documents")


def _run_values(package: WorkPackage, plan: PackagePlan) -> dict[str, str]:
    say = _words().say
    return {
        "TASKS": ", ".join(package.tasks) or say("tasks_none"),
        "DEPENDENCIES": ", ".join(package.dependencies) or say("none"),
        "COMMANDS": _commands(plan),
        "REVIEW_CYCLES": str(plan.review_cycles),
        "TIMEOUT_S": str(plan.timeout_s),
        "TIMEOUT_MIN": f"{plan.timeout_s / 60:.3g}",
        "TERM_S": f"{plan.timeout_s * 0.9:.0f}",
        "GRACE_S": f"{min(30.0, plan.timeout_s * 0.1):.0f}",
        "PROFILE": _profile(plan),
        "COORDINATION": _coordination(package),
    }


def _commands(plan: PackagePlan) -> str:
    say = _words().say
    order = ("setup", "typecheck", "lint", "test", "coverage", "build")
    known = [f"{say(f'command_{name}')}\n{plan.commands[name]}" for name in order if plan.commands.get(name)]
    return "\n\n".join(known) or say("no_commands")


def _profile(plan: PackagePlan) -> str:
    """The profile's own section, with a blank line behind it; nothing without a profile."""
    profile = plan.profile
    if profile is None:
        return ""
    names = {"PINNED": plan.pinned or profile.pinned, "PACKAGE": plan.language_package or profile.package}
    filled = fill_all(
        _shipped("profiles/PROFILE.md"),
        {
            "TITLE": profile.title,
            "LAYOUT": (plan.layout or profile.layout).strip("\n").replace("```", "'''"),
            "CONSTRAINTS": "\n".join(f"- {fill_all(line, names)}" for line in profile.constraints),
            "COMMANDS": "\n".join(
                _language_commands(plan, (fill_all(one, names) for one in profile.reference_commands))
            ),
            "STYLE": "\n".join(f"- {line}" for line in profile.style),
        },
    )
    return f"{filled}\n"


def _language_commands(plan: PackagePlan, known: Iterable[str]) -> Iterator[str]:
    """The commands that will really be run, then those of the profile that use the same tools. All of them without."""
    own = [line for line in plan.commands.values() if line]
    words = {word for line in own for word in line.replace("/", " ").split()}
    for name, line in plan.commands.items():
        if line:
            yield f"{line} {_words().say('command_' + name.partition(' ')[0])}"
    for line in known:
        command = line.partition(" # ")[0]
        if command not in own and (not own or _tool(command) in words):
            yield line


def _tool(command: str) -> str:
    """The program that a command is about: `pytest` of `python -m pytest -q`, `lint` of `npm run lint`."""
    words = command.split()
    return words[2] if words[:2] in (["python", "-m"], ["npm", "run"]) else words[0]


def is_whole(document: str) -> bool:
    """Whether a document has every section that agents rely on."""
    there = [_heading(line.text) for line in lines_of(document) if line.fence is None and line.text.startswith("## ")]
    wanted = _sections(_shipped("work_package/WP.md").replace("{{PROFILE}}", ""))
    return all(any(_is_same(title, own) for own in there) for title, _ in wanted)


def complete(document: str, package: WorkPackage, plan: PackagePlan) -> str:
    """A document that somebody else wrote, with the sections that it lacks behind its own text, kept to the letter."""
    there = [_heading(line.text) for line in lines_of(document) if line.fence is None and line.text.startswith("## ")]
    lacking = [
        text for title, text in _sections(_body(package, plan)) if not any(_is_same(title, own) for own in there)
    ]
    if not lacking:
        return document
    return f"{document.rstrip(chr(10))}\n\n{''.join(lacking)}".rstrip("\n") + "\n"


def _sections(body: str) -> Iterator[tuple[str, str]]:
    """The sections of a body, each with its title."""
    lines = body.splitlines(keepends=True)
    starts = [one.number - 1 for one in lines_of(body) if one.fence is None and one.text.startswith("## ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield _heading(lines[start]), "".join(lines[start:end])


def _heading(line: str) -> str:
    return squeeze(line.strip().lstrip("#").partition("(")[0]).casefold()


def _is_same(title: str, own: str) -> bool:
    return bool(own) and (title.startswith(own) or own.startswith(title))


def _coordination(package: WorkPackage) -> str:
    say = _words().say
    if package.num_agents == 1:
        return say("coordination_alone")
    parts = split(package.deliverables.all, package.num_agents)
    lines = [
        say("coordination_part", INDEX=str(index), FILES=_code_list(part))
        if part
        else say("coordination_part_empty", INDEX=str(index))
        for index, part in enumerate(parts)
    ]
    return say("coordination_shared", COUNT=str(len(parts)), PARTS="\n".join(lines), BRANCH=package.branch)
