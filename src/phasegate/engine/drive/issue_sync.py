"""Find the work of `phasegate sync`: issues that start a workflow, and features on the forge."""

from __future__ import annotations

from phasegate.core.forge.pull_decision import find_issue_reference, issue_to_description
from phasegate.core.machine.feature_machine import decide_feature_actions
from phasegate.core.machine.feature_state import FORGE_STEPS, Step
from phasegate.engine.drive.orders import start_workflow
from phasegate.engine.journal.feature import read_feature, read_workflows
from phasegate.engine.project.forge import open_forge
from phasegate.engine.project.ports import RunRecord
from phasegate.engine.project.project import Project
from phasegate.engine.steps.package_steps import uses_package_pull_requests
from phasegate.storage.lock import named_lock

# How long another `sync` may take to start the workflows of new issues
_MAX_SYNC_S = 600.0


def start_labelled_issues(project: Project, store: RunRecord) -> list[str]:
    """Start a workflow for every open issue with a label in `issue_workflows` that has none yet.

    Return the new features. They are not run. A lock makes sure that another process does not start
    the same ones.
    """
    if not project.config.forge.issue_workflows:
        return []

    with named_lock(project.location.locks_folder, "sync", _MAX_SYNC_S, project.stop):
        return _start_labelled_issues(project, store)


def _start_labelled_issues(project: Project, store: RunRecord) -> list[str]:
    """Start a workflow for each labelled issue without one; return the slugs."""
    workflows = project.config.forge.issue_workflows
    forge = open_forge(project).forge
    started = []
    features = (read_feature(store, slug) for slug in store.features())
    known = {find_issue_reference(feature.description) for feature in features if feature}

    for label, workflow in workflows.items():
        for issue in forge.list_issues(label):
            description = issue_to_description(issue.number, issue.title, issue.text)
            reference = find_issue_reference(description)
            if reference not in known:
                known.add(reference)
                started.append(
                    start_workflow(
                        project, store, workflow, description, by=project.make_origin("forge")
                    )
                )

    return started


def list_features_at_forge(project: Project, store: RunRecord) -> list[str]:
    """Return the features that may wait for the forge, themselves or with one of their packages."""
    steps = (*FORGE_STEPS, Step.PACKAGES) if uses_package_pull_requests(project) else FORGE_STEPS
    active = (one.feature for one in read_workflows(store) if one.is_active)
    features = ((slug, read_feature(store, slug)) for slug in active)

    return [
        slug
        for slug, feature in features
        if feature and any(one.step in steps for one in decide_feature_actions(feature))
    ]
