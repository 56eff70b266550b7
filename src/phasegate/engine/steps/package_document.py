"""What a package's document says of the project around it; and documents that others wrote, made whole."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phasegate.core.detection.language_facts import language_facts
from phasegate.core.plan.requirements import read_spec
from phasegate.core.plan.work_package import WorkPackage
from phasegate.core.text.yaml_nodes import Malformed
from phasegate.engine.checks.detect import files_at
from phasegate.engine.checks.manifest import profile_of
from phasegate.engine.checks.plan import plans_for
from phasegate.engine.journal.package import PlannedPackage, planned
from phasegate.engine.project.feature_branch import Branch
from phasegate.engine.project.ports import RecordReader
from phasegate.engine.project.project import Project
from phasegate.engine.steps.workplace import branch_and_head
from phasegate.prompts.front_matter import read_document
from phasegate.prompts.package_writer import PackagePlan, complete, is_whole

DOCUMENTS = ("spec.md", "plan.md", "architecture.md", "test-strategy.md")


def plan_around(branch: Branch, package: WorkPackage, commit: str, texts: Mapping[str, str]) -> PackagePlan:
    """What a commit says for the documents of packages: the commands that our checks will run, for the agent to try
    first; the language; what the feature's documents (`texts`) say.
    """
    project = branch.project
    files = files_at(project, commit)
    profile = profile_of(project, package.profile, (path for path in files.paths if "/" not in path))
    facts = language_facts(profile.name if profile else "", files)
    asked = {
        f"{name} in {one.plan.root}" if one.plan.root else name: line
        for one in plans_for(project, package, commit, commit)
        for name, line in one.plan.commands.items()
        if line
    }
    return PackagePlan(
        created="",
        base_branch=branch.name,
        commands=asked,
        requirement_texts=requirement_texts(texts.get("spec.md", "")),
        documents=tuple(name for name in DOCUMENTS if name in texts),
        profile=profile,
        layout=facts.layout,
        pinned=facts.pinned,
        language_package=facts.package,
        review_cycles=project.config.run.max_review_cycles,
    )


def made_whole(project: Project, record: RecordReader, one: PlannedPackage, timeout_s: float) -> PlannedPackage:
    """A package whose document lacks nothing that an agent must know. One that we wrote ourselves is as it was."""
    if is_whole(one.document):
        return one
    package, branch = one.package, Branch(project, one.package.feature_slug)
    _, commit = branch_and_head(project, branch.name)
    texts = branch.read({name: blob for name, blob in branch.documents(commit).items() if name in DOCUMENTS})
    plan = msgspec.structs.replace(
        plan_around(branch, package, commit, texts),
        created=next(iter(record.events(branch.slug))).ts,
        package_ids=tuple(planned(record, branch.slug)),
        timeout_s=int(timeout_s),
    )
    return one._replace(document=complete(one.document, package, plan))


def requirement_texts(spec: str) -> dict[str, str]:
    """What the specification says about each requirement."""
    try:
        body = read_document(spec).body
    except Malformed:
        return {}
    return {one.id: one.text for one in read_spec(body).requirements}
