"""A work package from the fields of its front matter, and back. The prose of the document is never read."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from phasegate.core.plan.work_package import COMMANDS, Deliverables, PackageChecks, WorkPackage, problems
from phasegate.core.text.finding import Finding, shown
from phasegate.core.text.yaml_nodes import Entries, Fields

Field = str | int | float | list[str] | dict[str, str] | dict[str, list[str]] | dict[str, str | float]

# What spec-kitty itself writes into its packages. Its states and histories are not ours, and are passed over.
FOREIGN_KEYS = frozenset(
    (
        *("subtasks", "phase", "lane", "assignee", "agent", "shell_pid", "shell_pid_created_at", "review_status"),
        *("reviewed_by", "review_ref", "history", "planning_base_branch", "merge_target_branch", "branch_strategy"),
        *("base_branch", "base_commit", "created_at", "agent_profile", "authoritative_surface", "create_intent"),
        *("execution_mode", "model", "role", "tags", "task_type", "tracker_refs", "audience"),
    )
)


class PackageReading(NamedTuple):
    """A package, or None and why not; with the lines of its keys."""

    package: WorkPackage | None
    findings: list[Finding]
    key_lines: Mapping[str, int] = MappingProxyType({})


def read_fields(entries: Entries, folder_slug: str = "") -> PackageReading:
    """Read a package; anything unknown, missing or unsound is a finding, and then there is no package.

    `folder_slug` is the name of the feature's folder, for documents that do not repeat it.
    """
    fields = Fields(entries)
    package = WorkPackage(
        work_package_id=fields.required("work_package_id"),
        title=fields.required("title"),
        feature_slug=fields.text("feature_slug", folder_slug),
        file_scope=_first_of(fields, "file_scope", "owned_files"),
        dependencies=fields.texts("dependencies"),
        deliverables=_deliverables(fields.fields("deliverables")),
        requirements=_first_of(fields, "requirements", "requirement_refs"),
        tasks=fields.texts("tasks"),
        profile=fields.text("profile"),
        checks=_checks(fields.fields("checks")),
        num_agents=fields.number("num_agents", 1),
        mission=fields.text("mission"),
        feature_title=fields.text("feature_title"),
        descriptions=fields.mapping("descriptions"),
        **{key: fields.texts(key) for key in _LISTS},
    )
    fields.refuse_others(FOREIGN_KEYS)
    if not fields.findings:
        for problem in problems(package):
            fields.problem(problem.key, problem.message, problem.value)
    return PackageReading(None if fields.findings else package, fields.findings, entries.key_lines)


_LISTS = (
    *("allowed_dependencies", "forbidden_dependencies", "architecture_rules", "quality_rules"),
    *("frozen_files", "executable_files"),
)


def _first_of(fields: Fields, ours: str, theirs: str) -> tuple[str, ...]:
    """A list under our name or under spec-kitty's; both at once would be a guess."""
    if fields.has(ours) and fields.has(theirs):
        fields.problem(theirs, f"stands beside {ours}; keep one of them")
    own, foreign = fields.texts(ours), fields.texts(theirs)
    return own or foreign


def _deliverables(fields: Fields | None) -> Deliverables:
    if fields is None:
        return Deliverables()
    found = Deliverables(fields.texts("code"), fields.texts("tests"), fields.texts("documentation"))
    fields.refuse_others()
    return found


def _checks(fields: Fields | None) -> PackageChecks:
    if fields is None:
        return PackageChecks()
    commands = {name: fields.optional(name) for name in COMMANDS}
    found = PackageChecks(**commands, coverage_min=_percentage(fields, fields.text("coverage_min")))
    fields.refuse_others()
    return found


def _percentage(fields: Fields, text: str) -> float | None:
    if not text:
        return None
    whole, dot, decimals = text.partition(".")
    digits = whole.isascii() and whole.isdigit() and len(whole) <= 3
    if digits and (not dot or (decimals.isascii() and decimals.isdigit() and len(decimals) <= 2)):
        return float(text)
    fields.problem("coverage_min", f"must be a percentage such as 80, not {shown(text)}")
    return None


def write_fields(package: WorkPackage) -> dict[str, Field]:
    """The fields of a package in the order of the document; those of our own only where they say something."""
    deliverables = package.deliverables
    fields: dict[str, Field] = {
        "work_package_id": package.work_package_id,
        "title": package.title,
        "feature_slug": package.feature_slug,
        "dependencies": [*package.dependencies],
        "file_scope": [*package.file_scope],
        "deliverables": {
            "code": [*deliverables.code],
            "tests": [*deliverables.tests],
            "documentation": [*deliverables.documentation],
        },
        "requirements": [*package.requirements],
        "tasks": [*package.tasks],
        "profile": package.profile,
        "checks": _written_checks(package.checks),
        "num_agents": package.num_agents,
        "allowed_dependencies": [*package.allowed_dependencies],
    }
    ours: dict[str, Field] = {"mission": package.mission, "feature_title": package.feature_title}
    ours |= {key: [*getattr(package, key)] for key in _LISTS[1:]} | {"descriptions": {**package.descriptions}}
    return fields | {key: value for key, value in ours.items() if value}


def _written_checks(checks: PackageChecks) -> dict[str, str | float]:
    written: dict[str, str | float] = {
        name: command for name in COMMANDS if (command := getattr(checks, name)) is not None
    }
    if checks.coverage_min is not None:
        least = float(checks.coverage_min)
        written["coverage_min"] = int(least) if least.is_integer() else least
    return written
