"""What `sync` finds to do: issues that begin a workflow, features whose next step is at the forge."""

from __future__ import annotations

from phasegate.core.forge.pull_request import issue_of_wish, wish_of_issue
from phasegate.core.machine.feature_machine import decide
from phasegate.core.machine.feature_state import AT_FORGE, Step
from phasegate.engine.drive.orders import start
from phasegate.engine.journal.feature import read_feature, recorded_workflows
from phasegate.engine.project.forge import open_forge
from phasegate.engine.project.ports import RunRecord
from phasegate.engine.project.project import Project
from phasegate.engine.steps.package_steps import packages_at_forge


def begin_labelled(project: Project, store: RunRecord) -> list[str]:
    """Begin a workflow for each open issue with a label of `starts` that had none; the features. None is run."""
    starts = project.config.forge.starts
    if not starts:
        return []
    forge, begun = open_forge(project).forge, []
    features = (read_feature(store, slug) for slug in store.features())
    known = {issue_of_wish(feature.description) for feature in features if feature}
    for label, workflow in starts.items():
        for issue in forge.issues(label):
            wish = wish_of_issue(issue.number, issue.title, issue.text)
            if issue_of_wish(wish) not in known:
                known.add(issue_of_wish(wish))
                begun.append(start(project, store, workflow, wish, by=project.ordered_at("forge")))
    return begun


def at_forge(project: Project, store: RunRecord) -> list[str]:
    """The features whose next step is at the forge, or that of their packages can be."""
    steps = (*AT_FORGE, Step.PACKAGES) if packages_at_forge(project) else AT_FORGE
    active = (one.feature for one in recorded_workflows(store) if one.active)
    features = ((slug, read_feature(store, slug)) for slug in active)
    return [slug for slug, feature in features if feature and any(one.step in steps for one in decide(feature))]
