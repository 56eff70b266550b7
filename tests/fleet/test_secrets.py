"""What is secret is in no history, bucket or trail: canaries, beside a control that gets everywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest

from phasegate.core.agents.secrets import SecretMatcher
from support.feature_run import DESCRIPTION, SLUG, TYPE
from support.fleet_machines import Fleet, Machine
from support.quick_dispatch import WHOLE
from support.s3_server import SECRET, S3Server
from support.temporal_server import TemporalServer

KEY, NOTE = "lent/key+0123456789.abcdef==", "mere/note+0123456789.abcdef="
SIGN_IN = "sign-in-0123456789abcdef"
LEAK = """
echo "$LEAKED_KEY $LEAKED_NOTE"
echo "$LEAKED_KEY" >&2
printf %s "$LEAKED_KEY" | phasegate artifact write --feature-slug SLUG --relative-path WP01/key.md -
printf %s "$LEAKED_NOTE" | phasegate artifact write --feature-slug SLUG --relative-path WP01/note.md -
git commit -q -m "WP01: $LEAKED_NOTE"
"""


@pytest.mark.demand("X8.n")
def test_no_key_is_in_a_history_a_bucket_or_a_trail(
    tmp_path: Path, s3: S3Server, temporal: TemporalServer, prefix: str
) -> None:
    fleet = Fleet(tmp_path, s3, temporal, prefix)
    worker, person = fleet.machine("worker"), fleet.machine("person")
    _leaking_agent(worker)
    worker.environment |= {"LEAKED_KEY": KEY, "LEAKED_NOTE": NOTE}
    sign_in = worker.folder / "home/.claude/.credentials.json"
    sign_in.parent.mkdir(parents=True)
    sign_in.write_text(json.dumps({"claudeAiOauth": {"accessToken": SIGN_IN}}))
    with worker.worker():
        done = person.phasegate("run", TYPE, DESCRIPTION, "--fleet", "--json")
    assert done.returncode in (0, 1), done.stderr
    places = dict(_stored(worker, s3, prefix))
    places["history"] = temporal.kept()
    assert SLUG.encode() in places["history"], "control"
    for secret in (KEY, SIGN_IN, SECRET):
        assert not [
            name
            for name, data in places.items()
            if SecretMatcher([secret.encode()]).has_secret(data)
        ], secret
    noted = [name for name, data in places.items() if NOTE.encode() in data]
    assert any(name.startswith("papers/") for name in noted), (
        f"control: what is no secret gets there: {noted}"
    )
    assert any(name.startswith("audit/") for name in noted), f"control: {noted}"


def _leaking_agent(worker: Machine) -> None:
    program = worker.folder / "agent.sh"
    leaks = LEAK.replace("SLUG", SLUG)
    program.write_text(re.sub(r'\n  git commit -q -m "WP01: Do it"\n', leaks, WHOLE))
    config = worker.root / "phasegate.toml"
    agent = f'harness = "command"\ncommand = {json.dumps(["/bin/sh", str(program)])}\nenv = ["LEAKED_KEY", "LEAKED_NOTE"]\n'
    config.write_text(
        config.read_text().replace('harness = "scripted"\nscenario = "../scenario.json"\n', agent)
    )


def _stored(worker: Machine, s3: S3Server, prefix: str) -> Iterator[tuple[str, bytes]]:
    """Every object of the bucket, and all that the worker keeps of trails and of its copy."""
    bucket = s3.bucket(prefix)
    for page in obstore.list(bucket._store):
        for about in page:
            found = bucket.get(about["path"])
            yield about["path"], found.data if found else b""
    for folder in (worker.root / ".phasegate/audit", worker.folder / "state"):
        for path in folder.rglob("*"):
            if path.is_file():
                yield f"worker {path.name}", path.read_bytes()
