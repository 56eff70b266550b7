"""A work package from the fields of its front matter, and back.

The prose of the document is never read.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from phasegate.core.plan.work_package import (
    CHECK_COMMANDS,
    Deliverables,
    PackageChecks,
    WorkPackage,
    find_package_problems,
)
from phasegate.core.text.finding import Finding, quote_text
from phasegate.core.text.yaml_nodes import FieldReader, YamlMapping

PackageFieldValue = (
    str | int | float | list[str] | dict[str, str] | dict[str, list[str]] | dict[str, str | float]
)

# What spec-kitty itself writes into its packages. Its states and histories are not ours, and are
# passed over.
SPEC_KITTY_KEYS = frozenset(
    (
        *(
            "subtasks",
            "phase",
            "lane",
            "assignee",
            "agent",
            "shell_pid",
            "shell_pid_created_at",
            "review_status",
        ),
        *(
            "reviewed_by",
            "review_ref",
            "history",
            "planning_base_branch",
            "merge_target_branch",
            "branch_strategy",
        ),
        *(
            "base_branch",
            "base_commit",
            "created_at",
            "agent_profile",
            "authoritative_surface",
            "create_intent",
        ),
        *("execution_mode", "model", "role", "tags", "task_type", "tracker_refs", "audience"),
    )
)


class ParsedPackage(NamedTuple):
    """A package, or None and why not; with the lines of its keys."""

    package: WorkPackage | None
    findings: list[Finding]
    key_lines: Mapping[str, int] = MappingProxyType({})


def parse_package_fields(entries: YamlMapping, folder_slug: str = "") -> ParsedPackage:
    """Read a package; anything unknown, missing or unsound is a finding, and then there is no
    package.

    `folder_slug` is the name of the feature's folder, for documents that do not repeat it.
    """
    fields = FieldReader(entries)
    package = WorkPackage(
        work_package_id=fields.read_required_text("work_package_id"),
        title=fields.read_required_text("title"),
        feature_slug=fields.read_text("feature_slug", folder_slug),
        file_scope=_read_either_list(fields, "file_scope", "owned_files"),
        dependencies=fields.read_texts("dependencies"),
        deliverables=_parse_deliverables(fields.read_nested("deliverables")),
        requirements=_read_either_list(fields, "requirements", "requirement_refs"),
        tasks=fields.read_texts("tasks"),
        profile=fields.read_text("profile"),
        checks=_parse_checks(fields.read_nested("checks")),
        num_agents=fields.read_number("num_agents", 1),
        mission=fields.read_text("mission"),
        feature_title=fields.read_text("feature_title"),
        descriptions=fields.read_text_mapping("descriptions"),
        **{key: fields.read_texts(key) for key in _LIST_KEYS},
    )

    fields.report_unknown_keys(SPEC_KITTY_KEYS)
    if not fields.findings:
        for problem in find_package_problems(package):
            fields.report_problem(problem.key, problem.message, problem.value)

    return ParsedPackage(None if fields.findings else package, fields.findings, entries.key_lines)


_LIST_KEYS = (
    *("allowed_dependencies", "forbidden_dependencies", "architecture_rules", "quality_rules"),
    *("frozen_files", "executable_files"),
)


def _read_either_list(fields: FieldReader, ours: str, theirs: str) -> tuple[str, ...]:
    """A list under our name or under spec-kitty's; both at once would be a guess."""
    if fields.has(ours) and fields.has(theirs):
        fields.report_problem(theirs, f"stands beside {ours}; keep one of them")
    own = fields.read_texts(ours)
    foreign = fields.read_texts(theirs)
    return own or foreign


def _parse_deliverables(fields: FieldReader | None) -> Deliverables:
    if fields is None:
        return Deliverables()

    found = Deliverables(
        fields.read_texts("code"), fields.read_texts("tests"), fields.read_texts("documentation")
    )
    fields.report_unknown_keys()
    return found


def _parse_checks(fields: FieldReader | None) -> PackageChecks:
    if fields is None:
        return PackageChecks()

    commands = {name: fields.read_optional_text(name) for name in CHECK_COMMANDS}
    found = PackageChecks(
        **commands, coverage_min=_parse_percentage(fields, fields.read_text("coverage_min"))
    )
    fields.report_unknown_keys()

    return found


def _parse_percentage(fields: FieldReader, text: str) -> float | None:
    if not text:
        return None

    whole, dot, decimals = text.partition(".")
    digits = whole.isascii() and whole.isdigit() and len(whole) <= 3
    if digits and (not dot or (decimals.isascii() and decimals.isdigit() and len(decimals) <= 2)):
        return float(text)

    fields.report_problem(
        "coverage_min", f"must be a percentage such as 80, not {quote_text(text)}"
    )
    return None


def serialize_package(package: WorkPackage) -> dict[str, PackageFieldValue]:
    """The fields of a package in the order of the document.

    Those of our own only where they say something.
    """
    deliverables = package.deliverables
    fields: dict[str, PackageFieldValue] = {
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
        "checks": _serialize_checks(package.checks),
        "num_agents": package.num_agents,
        "allowed_dependencies": [*package.allowed_dependencies],
    }

    ours: dict[str, PackageFieldValue] = {
        "mission": package.mission,
        "feature_title": package.feature_title,
    }
    ours |= {key: [*getattr(package, key)] for key in _LIST_KEYS[1:]} | {
        "descriptions": {**package.descriptions}
    }

    return fields | {key: value for key, value in ours.items() if value}


def _serialize_checks(checks: PackageChecks) -> dict[str, str | float]:
    written: dict[str, str | float] = {
        name: command for name in CHECK_COMMANDS if (command := getattr(checks, name)) is not None
    }
    if checks.coverage_min is not None:
        least = float(checks.coverage_min)
        if least.is_integer():
            written["coverage_min"] = int(least)
        else:
            written["coverage_min"] = least

    return written
