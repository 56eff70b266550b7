"""The task envelope: the task description that an agent receives.

It follows the interface specification exactly.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePath

import msgspec
from msgspec import UNSET, UnsetType

from phasegate.errors import ConfigError


class EnvelopeConfig(msgspec.Struct, frozen=True):
    """The settings of a run."""

    kind: str
    timeout_secs: int
    pr_target_branch: str
    num_agents: int = 1
    max_review_cycles: int = 5


class Envelope(msgspec.Struct, frozen=True):
    """The envelope, with fields in the order of the specification.

    The last four fields are omitted if they do not apply.
    """

    job_id: str
    feature_slug: str
    wp_sequence: int
    wp_id: str | None
    prompt_path: str
    context_paths: tuple[str, ...]
    worktree_path: str
    config: EnvelopeConfig
    agent_index: int | UnsetType = UNSET
    agent_count: int | UnsetType = UNSET
    assigned_deliverables: tuple[str, ...] | UnsetType = UNSET
    # plan, challenge, review or archive; omitted for implement
    role: str | UnsetType = UNSET

    def to_json(self) -> bytes:
        """Return one line of JSON, as a `command` agent reads it from stdin."""
        return msgspec.json.encode(self) + b"\n"


class EnvelopePackage(msgspec.Struct, frozen=True):
    """The work package of a run."""

    wp_id: str
    sequence: int


class AgentShare(msgspec.Struct, frozen=True):
    """One agent's share of a package that several agents work on."""

    agent_index: int
    agent_count: int
    deliverables: tuple[str, ...]


class RunPaths(msgspec.Struct, frozen=True):
    """The paths of a run, all inside the repository or its worktrees."""

    repository: Path
    worktrees: Path
    checkout: Path
    prompt: Path
    context: tuple[Path, ...] = ()


def make_envelope(
    job_id: str,
    feature_slug: str,
    paths: RunPaths,
    config: EnvelopeConfig,
    package: EnvelopePackage | None = None,
    share: AgentShare | None = None,
    role: str = "implement",
) -> Envelope:
    """Create the envelope of one run. Without a package, `wp_id` is null and `wp_sequence` is 0."""
    envelope = Envelope(
        job_id=job_id,
        feature_slug=feature_slug,
        wp_sequence=package.sequence if package else 0,
        wp_id=package.wp_id if package else None,
        prompt_path=_require_inside(paths, paths.prompt),
        context_paths=tuple(_require_inside(paths, path) for path in paths.context),
        worktree_path=_require_inside(paths, paths.checkout),
        config=config,
        role=UNSET if role == "implement" else role,
    )

    if share is None:
        return envelope
    return _add_share(envelope, share)


def _add_share(envelope: Envelope, share: AgentShare) -> Envelope:
    if not 0 <= share.agent_index < share.agent_count:
        raise ValueError(
            f"agent index {share.agent_index} is out of range: there are {share.agent_count} agents"
        )
    return msgspec.structs.replace(
        envelope,
        agent_index=share.agent_index,
        agent_count=share.agent_count,
        assigned_deliverables=share.deliverables,
    )


def _require_inside(paths: RunPaths, path: Path) -> str:
    """Return the path; refuse one outside of the repository and its worktrees.

    An agent may publish the files that it reads.
    """
    roots = (paths.repository, paths.worktrees)

    if (
        not path.is_absolute()
        or ".." in path.parts
        or not any(_is_below(path, root) for root in roots)
    ):
        raise ConfigError(
            f"{path} is not inside {paths.repository}", "use only files in this repository"
        )

    return str(path)


def _is_below(path: PurePath, root: PurePath) -> bool:
    return root.is_absolute() and path.is_relative_to(root)


def build_envelope_env(envelope: Envelope, prompt_xml: Path) -> Mapping[str, str]:
    """Return the variables that every agent gets in addition to the envelope.

    `AGILEPLUS_CONTEXT` is a list of paths in the format of PATH.
    """
    return {
        "AGILEPLUS_JOB_ID": envelope.job_id,
        "AGILEPLUS_WP_ID": envelope.wp_id or "",
        "AGILEPLUS_PROMPT": str(prompt_xml),
        "AGILEPLUS_CONTEXT": os.pathsep.join(envelope.context_paths),
    }
