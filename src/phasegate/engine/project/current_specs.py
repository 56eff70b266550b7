"""Read the current specifications, and the changes that features state, from commits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from phasegate.core.plan.consistency import SPEC_FILE
from phasegate.core.specs.bindings import find_ids
from phasegate.core.specs.deltas import Delta, read_deltas
from phasegate.core.specs.spec_file import CapabilitySpec, MalformedSpec, parse_spec
from phasegate.engine.project.feature_branch import MAX_DOCUMENT_BYTES, FeatureBranch
from phasegate.engine.project.project import Project
from phasegate.git import git
from phasegate.workspace.repository.commit_log import list_blobs
from phasegate.workspace.repository.repository import read_blobs


class CurrentSpecs(NamedTuple):
    """The specifications of a commit by capability, and what could not be read."""

    specs: dict[str, CapabilitySpec]
    problems: tuple[str, ...] = ()


def get_spec_path(project: Project, capability: str) -> str:
    """Return the path of a capability's specification."""
    return f"{project.config.deliver.specs.strip('/')}/{capability}.md"


def read_current_specs(project: Project, commit: str) -> CurrentSpecs:
    """Read the specifications of a commit: the documents directly in the folder of specs."""
    prefix = get_spec_path(project, "").removesuffix(".md")
    paths = [
        path
        for path in list_blobs(project.repository, commit, include_links=False)
        if path.startswith(prefix) and path.endswith(".md") and "/" not in path[len(prefix) :]
    ]
    specs = {}
    problems = []
    for path, text in read_texts(project, commit, paths).items():
        try:
            specs[path.removeprefix(prefix).removesuffix(".md")] = parse_spec(text)
        except MalformedSpec as error:
            problems.append(f"{path}: {error}")
    return CurrentSpecs(specs, tuple(problems))


def read_texts(project: Project, commit: str, paths: Iterable[str]) -> dict[str, str]:
    """Return the texts of files of a commit; without binary, missing and too large ones."""
    wanted = {*paths}
    blobs = {
        path: blob
        for path, blob in list_blobs(project.repository, commit, include_links=False).items()
        if path in wanted
    }
    contents = read_blobs(project.repository.place(), blobs.values())
    texts = {}
    for path, blob in blobs.items():
        if len(contents[blob]) <= MAX_DOCUMENT_BYTES and b"\0" not in contents[blob]:
            texts[path] = contents[blob].decode(errors="replace")
    return texts


def list_used_ids(project: Project, commit: str) -> set[str]:
    """Return the ids that a specification up to a commit has ever had or named.

    A removed requirement keeps its id: another one must not take it.
    """
    folder = get_spec_path(project, "").rpartition("/")[0]
    arguments = ("--full-history", "-m", "-U0", "--text", "--no-ext-diff", "--no-textconv")
    log = ("log", "--format=", "--no-color", *arguments, commit, "--", folder)
    return find_ids(git(project.repository.place(), *log).stdout.decode(errors="replace"))


def read_feature_deltas(branch: FeatureBranch, commit: str) -> tuple[Delta, ...]:
    """Return the changes that the feature's specification states; raise MalformedSpec."""
    return read_deltas(read_feature_spec(branch, commit))


def read_feature_spec(branch: FeatureBranch, commit: str) -> str:
    """Return the feature's specification on a commit; empty if there is none."""
    blob = branch.list_documents(commit).get(SPEC_FILE)
    if not blob:
        return ""
    return branch.read_documents({SPEC_FILE: blob}).get(SPEC_FILE, "")
