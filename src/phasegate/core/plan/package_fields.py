"""Convert between a work package and the fields of its front matter.

The prose of the document is never read.
"""

from __future__ import annotations

import re
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

# Keys that spec-kitty writes into its packages. We do not use its states and histories: they are
# ignored.
SPEC_KITTY_KEYS = frozenset(
    (
        "agent",
        "agent_profile",
        "assignee",
        "audience",
        "authoritative_surface",
        "base_branch",
        "base_commit",
        "branch_strategy",
        "create_intent",
        "created_at",
        "execution_mode",
        "history",
        "lane",
        "merge_target_branch",
        "model",
        "phase",
        "planning_base_branch",
        "review_ref",
        "review_status",
        "reviewed_by",
        "role",
        "shell_pid",
        "shell_pid_created_at",
        "subtasks",
        "tags",
        "task_type",
        "tracker_refs",
    )
)


_PERCENTAGE = re.compile(r"[0-9]{1,3}(\.[0-9]{1,2})?")


class ParsedPackage(NamedTuple):
    """A parsed package: None if it is invalid, its findings, and the line of each key."""

    package: WorkPackage | None
    findings: list[Finding]
    key_lines: Mapping[str, int] = MappingProxyType({})


def parse_package_fields(entries: YamlMapping, folder_slug: str = "") -> ParsedPackage:
    """Parse a package. Anything unknown, missing or invalid is a finding, and the package is None.

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
    "allowed_dependencies",
    "forbidden_dependencies",
    "architecture_rules",
    "quality_rules",
    "frozen_files",
    "executable_files",
    "may_stay_unchanged",
)


def _read_either_list(fields: FieldReader, ours: str, theirs: str) -> tuple[str, ...]:
    """Read a list under Phasegate's name or spec-kitty's; both at once would be ambiguous."""
    if fields.has(ours) and fields.has(theirs):
        fields.report_problem(theirs, f"is given in addition to {ours}; keep one of them")

    # Read both, so that neither is reported as unknown
    our_values = fields.read_texts(ours)
    their_values = fields.read_texts(theirs)
    return our_values or their_values


def _parse_deliverables(fields: FieldReader | None) -> Deliverables:
    if fields is None:
        return Deliverables()

    deliverables = Deliverables(
        code=fields.read_texts("code"),
        tests=fields.read_texts("tests"),
        documentation=fields.read_texts("documentation"),
    )
    fields.report_unknown_keys()
    return deliverables


def _parse_checks(fields: FieldReader | None) -> PackageChecks:
    if fields is None:
        return PackageChecks()

    commands = {name: fields.read_optional_text(name) for name in CHECK_COMMANDS}
    checks = PackageChecks(
        **commands, coverage_min=_parse_percentage(fields, fields.read_text("coverage_min"))
    )
    fields.report_unknown_keys()

    return checks


def _parse_percentage(fields: FieldReader, text: str) -> float | None:
    if not text:
        return None

    if _PERCENTAGE.fullmatch(text):
        return float(text)

    fields.report_problem(
        "coverage_min", f"must be a percentage such as 80, not {quote_text(text)}"
    )
    return None


def serialize_package(package: WorkPackage) -> dict[str, PackageFieldValue]:
    """Return the fields of a package in the order of the document.

    Our own optional fields are included only if they are not empty.
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

    optional: dict[str, PackageFieldValue] = {
        "mission": package.mission,
        "feature_title": package.feature_title,
        **{key: [*getattr(package, key)] for key in _LIST_KEYS[1:]},
        "descriptions": {**package.descriptions},
    }

    return fields | {key: value for key, value in optional.items() if value}


def _serialize_checks(checks: PackageChecks) -> dict[str, str | float]:
    fields: dict[str, str | float] = {
        name: command for name in CHECK_COMMANDS if (command := getattr(checks, name)) is not None
    }
    if checks.coverage_min is not None:
        minimum = float(checks.coverage_min)
        fields["coverage_min"] = int(minimum) if minimum.is_integer() else minimum

    return fields
