"""Apply a feature's changes of requirements to the current specifications, at its merge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from phasegate.core.plan.consistency import SPEC_FILE
from phasegate.core.plan.planning import classify_file
from phasegate.core.specs.bindings import (
    add_bindings,
    find_named_code,
    find_named_tests,
    hash_target,
    set_accepted,
)
from phasegate.core.specs.deltas import (
    Delta,
    apply_deltas,
    fill_starts,
    find_delta_conflicts,
    find_restatements,
    read_deltas,
    stamp_deltas,
)
from phasegate.core.specs.spec_file import CapabilitySpec, MalformedSpec, render_spec
from phasegate.engine.project.current_specs import (
    get_spec_path,
    read_current_specs,
    read_feature_deltas,
    read_feature_spec,
    read_texts,
)
from phasegate.engine.project.feature_branch import FeatureBranch
from phasegate.errors import PhasegateError
from phasegate.workspace.repository.commit_log import list_blobs, list_changed_paths
from phasegate.workspace.repository.disk_files import blob_id
from phasegate.workspace.repository.merge import find_merge_base, merge_trees
from phasegate.workspace.repository.objects import write_blobs

SPEC_REMEDY = (
    'decide which text applies: phasegate amend FR-X "TEXT" starts from the current one; '
    "or edit spec.md on the feature's branch, then resolve"
)


class SpecUpdate(NamedTuple):
    """The specifications that a merge changes, by path; or why it must not."""

    files: dict[str, bytes]
    problems: tuple[str, ...] = ()


def compute_spec_update(branch: FeatureBranch, head: str, base: str, merged: str) -> SpecUpdate:
    """Apply the changes that the feature's spec.md states at `head` to the documents of `base`.

    `merged` is a commit or tree that has the feature's code. Drift of tests and code that the
    feature changed is accepted; drift that existed before it stays reported.
    """
    project = branch.project
    current = read_current_specs(project, base)
    text = read_feature_spec(branch, head)
    try:
        deltas = read_deltas(text)
        restated = [*find_restatements(text, current.specs)]
    except MalformedSpec as error:
        return SpecUpdate({}, (f"{SPEC_FILE}: {error}",))
    if not deltas and not current.specs:
        return SpecUpdate({})

    applied = apply_deltas(current.specs, deltas)
    problems = [problem.describe() for problem in (*applied.problems, *restated)]
    if deltas:
        problems += current.problems
        problems += _find_folder_problem(branch, base)
    start = find_merge_base(project.repository, base, head) or base
    changed = list_changed_paths(project.repository, start, head)
    bound = _bind(branch, applied.specs, base, merged, changed)

    files = {}
    for capability, spec in bound.items():
        path = get_spec_path(project, capability)
        if spec == current.specs.get(capability):
            continue
        if path not in changed:
            files[path] = render_spec(spec).encode()
        elif applied.specs[capability] != current.specs.get(capability):
            problems.append(
                f"{path} was changed on {branch.name} itself: state the change in {SPEC_FILE} only"
            )

    if problems:
        return SpecUpdate({}, tuple(problems))
    return SpecUpdate(files)


def _find_folder_problem(branch: FeatureBranch, base: str) -> list[str]:
    """Report a file where the folder of the specifications has to be."""
    repository = branch.project.repository
    folder = branch.project.config.deliver.specs.strip("/")
    if folder in list_blobs(repository, base):
        return [f"{folder} is a file: set another folder, `specs` in [deliver]"]
    return []


def compute_merged_specs(branch: FeatureBranch, head: str, base: str, code: str) -> SpecUpdate:
    """Return the specifications of the base after the merge of a feature's code."""
    merged = merge_trees(branch.project.repository, base, code).tree
    return compute_spec_update(branch, head, base, merged)


def describe_spec_problems(update: SpecUpdate) -> str:
    """Describe why the specifications cannot be changed."""
    return "the current specifications cannot be changed as stated:\n" + "\n\n".join(
        update.problems
    )


def _bind(
    branch: FeatureBranch,
    specs: Mapping[str, CapabilitySpec],
    base: str,
    merged: str,
    changed: Iterable[str],
) -> dict[str, CapabilitySpec]:
    """Bind requirements to the changed tests that name them, and accept the changes."""
    project = branch.project
    bound_paths = {
        binding.target.partition("::")[0]
        for spec in specs.values()
        for requirement in spec.requirements.values()
        for binding in requirement.all_bindings
    }
    before = read_texts(project, base, {*bound_paths, *changed})
    after = read_texts(project, merged, {*bound_paths, *changed})
    code = [path for path in changed if classify_file(path) == "code" and path in after]
    found: dict[str, list[tuple[str, str]]] = {}
    for path in changed:
        if path not in after or classify_file(path) != "tests":
            continue
        for test in find_named_tests(path, after[path]):
            targets = found.setdefault(test.requirement, [])
            targets.append(("test", test.target))
            for one in code:
                named = find_named_code(test.text, one, before.get(one, ""), after[one])
                targets += [("code", target) for target in named]

    return {
        capability: _accept_changes(add_bindings(spec, found), before, after)
        for capability, spec in specs.items()
    }


def _accept_changes(
    spec: CapabilitySpec, before: Mapping[str, str], after: Mapping[str, str]
) -> CapabilitySpec:
    accepted = {}
    for requirement in spec.requirements.values():
        for binding in requirement.all_bindings:
            new = hash_target(binding.target, after)
            was_accepted = binding.accepted == hash_target(binding.target, before)
            if (new and not binding.accepted) or (binding.accepted and was_accepted):
                accepted[requirement.id, binding.target] = new
    return set_accepted(spec, accepted)


def store_files(branch: FeatureBranch, files: Mapping[str, bytes]) -> dict[str, str]:
    """Store contents as blobs; return their ids by path."""
    repository = branch.project.repository
    write_blobs(repository, files.values())
    return {path: blob_id(data, repository.hash_name) for path, data in files.items()}


def stamp_specification(branch: FeatureBranch, text: str) -> str:
    """Add the revisions that the changes start from: those on the feature's branch."""
    try:
        return stamp_deltas(text, read_current_specs(branch.project, branch.read_head()).specs)
    except MalformedSpec:
        return text


def describe_delta_problems(branch: FeatureBranch, commit: str) -> tuple[str, ...]:
    """Return the problems of the requirement changes on a commit of the branch."""
    current = read_current_specs(branch.project, commit)
    text = read_feature_spec(branch, commit)
    try:
        deltas = read_deltas(text)
        restated = [*find_restatements(text, current.specs)]
    except MalformedSpec as error:
        return (f"{SPEC_FILE}: {error}",)

    # Phasegate adds the start when it plans
    applied = apply_deltas(current.specs, fill_starts(deltas, current.specs))
    unread = current.problems if deltas else ()
    return (*unread, *(one.describe() for one in (*applied.problems, *restated)))


def describe_spec_conflicts(
    branch: FeatureBranch, base: str, open_features: Iterable[str]
) -> tuple[str, ...]:
    """Describe the requirements that others change too, with both texts.

    These are other open features, and what was merged into the base since this one began.
    """
    own = _try_read_deltas(branch)
    tip = branch.project.refs.fetch(base).get(base) if own else None
    if tip is None:
        return ()

    others = {
        slug: _try_read_deltas(FeatureBranch(branch.project, slug))
        for slug in open_features
        if slug != branch.slug
    }
    specs = read_current_specs(branch.project, tip).specs
    merged = (one for one in apply_deltas(specs, own).problems if one.code in ("stale", "unknown"))
    return tuple(one.describe() for one in (*merged, *find_delta_conflicts(own, others)))


def _try_read_deltas(branch: FeatureBranch) -> tuple[Delta, ...]:
    """Return a feature's changes; empty if unreadable, because its own gate reports that."""
    try:
        return read_feature_deltas(branch, branch.read_head())
    except (MalformedSpec, PhasegateError):
        return ()
