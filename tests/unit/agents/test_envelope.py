"""The task envelope, to the letter."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from phasegate.agents.envelope import (
    AgentShare,
    Envelope,
    EnvelopeConfig,
    EnvelopePackage,
    RunPaths,
    build_envelope_env,
    make_envelope,
)
from phasegate.errors import ConfigError

ROOT = Path("/path/to")
CHECKOUT = ROOT / ".worktrees/001-login-WP01"
PLACES = RunPaths(
    repository=ROOT,
    worktrees=ROOT / ".worktrees",
    checkout=CHECKOUT,
    prompt=CHECKOUT / "WP01.md",
    context=(ROOT / "kitty-specs/001-user-login/spec.md", ROOT / "ARCHITECTURE.md"),
)
CONFIG = EnvelopeConfig(
    kind="claude_code", timeout_secs=1800, pr_target_branch="feat/001-login-WP01"
)

# The example of the interface specification, with two of its four context documents.
SPECIFIED = """{
"job_id": "3a6b8c9d-1e2f-4a5b-8c9d-1e2f4a5b8c9d",
"feature_slug": "001-user-login",
"wp_sequence": 1,
"wp_id": "WP01",
"prompt_path": "/path/to/.worktrees/001-login-WP01/WP01.md",
"context_paths": [
"/path/to/kitty-specs/001-user-login/spec.md",
"/path/to/ARCHITECTURE.md"
],
"worktree_path": "/path/to/.worktrees/001-login-WP01",
"config": {
"kind": "claude_code",
"timeout_secs": 1800,
"pr_target_branch": "feat/001-login-WP01",
"num_agents": 1,
"max_review_cycles": 5
}
}"""


def envelope(**changes: object) -> Envelope:
    package = changes.pop("package", EnvelopePackage("WP01", 1))
    places = msgspec.structs.replace(PLACES, **changes)
    return make_envelope(
        "3a6b8c9d-1e2f-4a5b-8c9d-1e2f4a5b8c9d",
        "001-user-login",
        places,
        CONFIG,
        package,  # type: ignore[arg-type]
    )


@pytest.mark.demand("D1.a")
def test_the_envelope_has_every_field_of_the_specification_in_its_order() -> None:
    written = json.loads(envelope().to_json())
    specified = json.loads(SPECIFIED)
    assert written == specified
    assert list(written) == list(specified)
    assert list(written["config"]) == list(specified["config"])


@pytest.mark.demand("D1.a")
def test_the_envelope_is_one_line() -> None:
    assert envelope().to_json().count(b"\n") == 1
    assert envelope().to_json().endswith(b"\n")


@pytest.mark.demand("D1.b")
def test_a_share_is_told_only_when_the_package_is_split() -> None:
    share = AgentShare(
        agent_index=1, agent_count=2, deliverables=("src/auth/models.rs", "src/auth/mod.rs")
    )
    whole = make_envelope("j", "001-x", PLACES, CONFIG, EnvelopePackage("WP01", 1))
    part = make_envelope("j", "001-x", PLACES, CONFIG, EnvelopePackage("WP01", 1), share)
    assert (
        not {"agent_index", "agent_count", "assigned_deliverables"}
        & json.loads(whole.to_json()).keys()
    )
    told = json.loads(part.to_json())
    assert (told["agent_index"], told["agent_count"]) == (1, 2)
    assert told["assigned_deliverables"] == ["src/auth/models.rs", "src/auth/mod.rs"]


@pytest.mark.demand("D1.b")
def test_the_first_agent_of_several_is_told_its_index_too() -> None:
    part = make_envelope(
        "j", "001-x", PLACES, CONFIG, EnvelopePackage("WP01", 1), AgentShare(0, 2, ())
    )
    assert json.loads(part.to_json())["agent_index"] == 0


@pytest.mark.demand("D1.b")
@pytest.mark.parametrize(("index", "count"), [(2, 2), (-1, 2), (0, 0)])
def test_there_is_no_agent_beyond_the_count(index: int, count: int) -> None:
    with pytest.raises(ValueError, match="is out of range"):
        make_envelope(
            "j", "001-x", PLACES, CONFIG, EnvelopePackage("WP01", 1), AgentShare(index, count, ())
        )


@pytest.mark.demand("D1.f")
def test_a_run_that_is_not_of_a_package_has_no_package_id() -> None:
    written = json.loads(envelope(package=None).to_json())
    assert written["wp_id"] is None
    assert written["wp_sequence"] == 0


@pytest.mark.demand("D1.g")
@pytest.mark.parametrize(
    "path",
    [
        "relative/spec.md",
        "/etc/passwd",
        "/path/tomorrow/spec.md",
        "/path/to/../secret",
        "/path/to/../../etc/x",
    ],
)
def test_no_path_leads_out_of_the_repository(path: str) -> None:
    for change in ({"context": (Path(path),)}, {"prompt": Path(path)}, {"checkout": Path(path)}):
        with pytest.raises(ConfigError, match="is not inside"):
            envelope(**change)


@pytest.mark.demand("D1.g")
def test_worktrees_may_lie_beside_the_repository() -> None:
    beside = Path("/elsewhere/trees")
    written = envelope(
        worktrees=beside, checkout=beside / "001-x-WP01", prompt=beside / "001-x-WP01/WP01.md"
    )
    assert written.worktree_path == "/elsewhere/trees/001-x-WP01"


@pytest.mark.demand("D1.d")
def test_the_variables_say_the_same_as_the_envelope() -> None:
    assert build_envelope_env(envelope(), ROOT / "prompt.xml") == {
        "AGILEPLUS_JOB_ID": "3a6b8c9d-1e2f-4a5b-8c9d-1e2f4a5b8c9d",
        "AGILEPLUS_WP_ID": "WP01",
        "AGILEPLUS_PROMPT": "/path/to/prompt.xml",
        "AGILEPLUS_CONTEXT": "/path/to/kitty-specs/001-user-login/spec.md:/path/to/ARCHITECTURE.md",
    }
    assert build_envelope_env(envelope(package=None), ROOT / "prompt.xml")["AGILEPLUS_WP_ID"] == ""
