"""Collect the project facts that a package's document states, and complete foreign documents."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import msgspec

from phasegate.core.detection.language_facts import collect_language_facts
from phasegate.core.plan.planning import add_guidance, read_guidance
from phasegate.core.plan.requirements import read_spec
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.text.markdown_lines import iter_markdown_lines
from phasegate.core.text.yaml_nodes import MalformedDocument
from phasegate.engine.checks.detect import read_project_files
from phasegate.engine.checks.manifest import choose_profile
from phasegate.engine.journal.package import PlannedPackage
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.engine.project.ports import RecordReader
from phasegate.engine.project.project import Project
from phasegate.engine.steps.context_documents import (
    read_agent_pages,
    select_feature_documents,
)
from phasegate.engine.steps.project_context import list_commands
from phasegate.engine.steps.workplace import resolve_branch_and_head
from phasegate.prompts.front_matter import read_document
from phasegate.prompts.package_writer import PackagePlan, complete_document, has_all_sections

_MAX_HEADINGS = 4


def build_package_plan(
    branch: FeatureBranch, package: WorkPackage, base: str, commit: str, texts: Mapping[str, str]
) -> PackagePlan:
    """Collect the facts about a commit for the documents of packages.

    They are: the commands that the checks will run, so that the agent can try them first; the
    language; excerpts of the feature's documents (`texts`). `base` is the branch that the feature
    is merged into, or empty.
    """
    project = branch.project
    files = read_project_files(project, commit)
    profile = choose_profile(
        project, package.profile, (path for path in files.paths if "/" not in path)
    )
    facts = collect_language_facts(profile.name if profile else "", files)
    commands = list_commands(branch, package, commit)
    merge = project.config.merge
    given = (
        *select_feature_documents(texts),
        *read_agent_pages(project, base, commit, project.root),
    )

    return PackagePlan(
        created="",
        base_branch=branch.name,
        commands=commands,
        requirement_texts=extract_requirement_texts(texts.get("spec.md", "")),
        documents={document.name: read_headings(document.text) for document in given},
        opens_pull_request=merge.mode == "pull-request" and merge.per == "package",
        profile=profile,
        layout=facts.layout,
        pinned=facts.pinned,
        language_package=facts.package,
        review_cycles=project.config.run.max_review_cycles,
    )


def complete_package_document(
    project: Project, record: RecordReader, planned_package: PlannedPackage, timeout_s: float
) -> PlannedPackage:
    """Return a package whose document has every section that an agent needs.

    A document that Phasegate wrote is complete and returned unchanged. Rules that a document of the
    user leaves out are those of plan.md.
    """
    if has_all_sections(planned_package.document):
        return planned_package

    package = planned_package.package
    branch = FeatureBranch(project, package.feature_slug)
    _, commit = resolve_branch_and_head(project, branch.name)
    texts = branch.read_documents(branch.list_documents(commit))
    base = next((row.base for row in record.workflows() if row.feature == branch.slug), "")
    package = add_guidance(package, read_guidance(texts.get("plan.md", "")))

    plan = msgspec.structs.replace(
        build_package_plan(branch, package, base, commit, texts),
        created=next(iter(record.events(branch.slug))).ts,
        timeout_s=int(timeout_s),
    )

    return planned_package._replace(
        package=package, document=complete_document(planned_package.document, package, plan)
    )


def read_headings(text: str) -> tuple[str, ...]:
    """Return the first headings of level two of a document."""
    headings = (
        line.text.removeprefix("## ")
        for line in iter_markdown_lines(text)
        if line.fence_info is None and line.text.startswith("## ")
    )
    return tuple(islice(headings, _MAX_HEADINGS))


def extract_requirement_texts(spec: str) -> dict[str, str]:
    """Return the text of each requirement in the specification."""
    try:
        body = read_document(spec).body
    except MalformedDocument:
        return {}
    return {requirement.id: requirement.text for requirement in read_spec(body).requirements}
