"""Workflows of a release are carried on by later code: their histories are kept, and replayed."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import socket
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from temporalio.workflow import NondeterminismError

from phasegate import __version__
from phasegate.core.machine.feature_machine import FeatureAction, decide_feature_actions
from phasegate.core.machine.feature_state import Feature, Step
from phasegate.engine.fleet import temporal_workflow as workflow
from phasegate.engine.fleet.client import FleetPayloadConverter
from phasegate.engine.fleet.temporal_workflow import FeatureWorkflow
from support.alike_runs import alike
from support.feature_run import DESCRIPTION, SLUG, TYPE
from support.fleet_machines import Fleet, local_run
from support.s3_server import S3Server
from support.temporal_server import TemporalServer

FOLDER = Path(__file__).parents[1] / "fixtures/fleet_histories"
HISTORIES = sorted(FOLDER.glob("*.json"))
FLOW = sha256(Path(workflow.__file__).read_bytes()).hexdigest()[:8]
ANEW = "record it anew: KEEP_HISTORY=1 make test-fleet"


def replay(history: WorkflowHistory) -> None:
    runner = SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules("phasegate", "msgspec")
    )
    converter = DataConverter(payload_converter_class=FleetPayloadConverter)
    replayer = Replayer(
        workflows=[FeatureWorkflow], data_converter=converter, workflow_runner=runner
    )
    asyncio.run(replayer.replay_workflow(history))


def kept(path: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json("kept", path.read_text())


async def newest_history(address: str, slug: str) -> WorkflowHistory:
    """The history of a feature's last workflow at a server."""
    client = await Client.connect(address)
    found = [one async for one in client.list_workflows() if one.id.endswith(f" {slug}")]
    newest = max(found, key=lambda one: one.start_time)
    return await client.get_workflow_handle(newest.id, run_id=newest.run_id).fetch_history()


async def lengths_of_runs(address: str, slug: str) -> list[int]:
    """How many events each run of a feature's workflow has."""
    client = await Client.connect(address)
    found = [one async for one in client.list_workflows() if one.id.endswith(f" {slug}")]
    return [one.history_length for one in found]


def replayed_and_kept(address: str, slug: str) -> WorkflowHistory:
    """The history that was just made, which the same code carries on; kept as that of this version if wanted."""
    history = asyncio.run(newest_history(address, slug))
    replay(history)
    if os.environ.get("KEEP_HISTORY"):
        for old in FOLDER.glob(f"{__version__}-*.json"):
            old.unlink()
        FOLDER.mkdir(exist_ok=True)
        FOLDER.joinpath(f"{__version__}-{FLOW}.json").write_text(neutral(history.to_json()))
    return history


def neutral(text: str) -> str:
    """A history without the name of the machine that made it."""
    host, payload = socket.gethostname(), re.compile(r'("data": *")([A-Za-z0-9+/=]+)(")')

    def renamed(found: re.Match[str]) -> str:
        plain = base64.b64decode(found[2]).replace(host.encode(), b"machine")
        return found[1] + base64.b64encode(plain).decode() + found[3]

    return payload.sub(renamed, text).replace(host, "machine")


@pytest.mark.demand("X8.m")
@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_the_history_of_every_release_is_carried_on_by_this_code(path: Path) -> None:
    """Red: a rule or the flow decides otherwise than it did. A workflow that is open would stop there for ever."""
    version, _, flow = path.stem.rpartition("-")
    try:
        replay(kept(path))
    except NondeterminismError:
        if (
            version == __version__ and flow != FLOW
        ):  # not released yet: nobody has such a workflow open
            pytest.skip(f"the flow was changed since, and {version} is not out: {ANEW}")
        raise


@pytest.mark.demand("X8.m")
def test_a_changed_rule_is_found_by_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    def another(feature: Feature) -> Sequence[FeatureAction]:
        due = decide_feature_actions(feature)
        return (
            [msgspec.structs.replace(due[0], step=Step.STOP)] if due[0].step is Step.GATE else due
        )

    newest = max(HISTORIES, key=lambda path: path.stat().st_mtime)
    if not newest.stem.endswith(FLOW):
        pytest.skip(f"the flow was changed since: {ANEW}")
    monkeypatch.setattr(workflow, "decide_feature_actions", another)
    with pytest.raises(NondeterminismError):
        replay(kept(newest))


@pytest.mark.demand("X8.m")
def test_a_workflow_whose_history_grows_long_goes_on_in_new_runs_to_the_same_end(
    tmp_path: Path, s3: S3Server, temporal_program: str, prefix: str
) -> None:
    local, first, tree = local_run(tmp_path / "local")
    temporal = TemporalServer(temporal_program, tmp_path / "temporal", long_history=30)
    temporal.start()
    try:
        fleet = Fleet(tmp_path, s3, temporal, prefix)
        worker, person = fleet.machine("worker"), fleet.machine("person")
        with worker.worker():
            done = person.phasegate("run", TYPE, DESCRIPTION, "--fleet")
        assert done.returncode == 0, done.stdout + done.stderr
        lengths = asyncio.run(lengths_of_runs(temporal.address, SLUG))
    finally:
        temporal.kill()
    assert len(lengths) > 2
    assert max(lengths) < 60
    second = fleet.events()
    assert [*alike(second, worker.root)] == [*alike(first, local.root)]
    assert fleet.tree(second[0].ts)["bye.py"] == tree["bye.py"]
