"""A person who is signed in needs no key: the real programs take the sign-in that was lent to their job.

The sign-ins are made up, and so are the home folders. The stand-in sees what arrives.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from phasegate.agents.port import AgentConfig, Ending, get_harness
from phasegate.agents.run.sandboxed import AgentRun, build_job_request, run_agent
from phasegate.agents.run.sign_in_files import share_sign_in
from phasegate.agents.spool.server import RequestSpool
from phasegate.sandbox.job import SandboxedJob
from support.git_project import make_repository
from support.real_agents import MODEL, strongest
from support.standin import Say, Shell, Standin
from support.tasks import make_task

IN_A_MONTH_MS = int((time.time() + 30 * 86_400) * 1000)
TOKEN = "made-up-token-5521"


class SignedIn(NamedTuple):
    """What a person has who signed in, and the file that says so."""

    kind: str
    file: str
    content: object
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = {}


def signed_in(kind: str, url: str) -> SignedIn:
    if kind == "claude_code":
        tokens = {"accessToken": TOKEN, "refreshToken": f"{TOKEN}-r", "expiresAt": IN_A_MONTH_MS}
        account = {**tokens, "scopes": ["user:inference"], "subscriptionType": "max"}
        return SignedIn(
            kind,
            ".claude/.credentials.json",
            {"claudeAiOauth": account},
            (),
            {"ANTHROPIC_BASE_URL": url},
        )
    if kind == "codex":
        provider = (
            f'{{name="s",base_url="{url}/v1",requires_openai_auth=true,wire_api="responses"}}'
        )
        command = (
            "codex",
            "-c",
            'model_provider="s"',
            "-c",
            f"model_providers.s={provider}",
            "-c",
            'model="gpt-5.5"',
        )
        return SignedIn(
            kind, ".codex/auth.json", {"OPENAI_API_KEY": TOKEN, "tokens": None}, command
        )
    provider_of_models = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1"},
        "models": {MODEL: {}},
    }
    settings = {
        "model": f"s/{MODEL}",
        "small_model": f"s/{MODEL}",
        "provider": {"s": provider_of_models},
    }
    account_of_s = {"s": {"type": "api", "key": TOKEN}}
    env = {"OPENCODE_CONFIG_CONTENT": json.dumps(settings)}
    return SignedIn(kind, ".local/share/opencode/auth.json", account_of_s, (), env)


def run_signed_in(person: SignedIn, home: Path, root: Path) -> AgentRun:
    """As the orchestrator does, with a home folder that is given."""
    make_repository(root / "checkout", {"README.md": "A project\n"})
    task = make_task(
        root / "checkout", AgentConfig("real", command=person.command), kind=person.kind
    )
    level, harness, folder = strongest(), get_harness(person.kind), root / "job"
    task = msgspec.structs.replace(task, sandboxed=level.is_sandboxed)
    launch = harness.launch(task)
    with (
        RequestSpool(folder / "spool") as spool,
        share_sign_in(launch.sign_in_files, home, folder / "home") as sign_in,
    ):
        request = build_job_request(
            task,
            launch,
            folder,
            spool,
            tag=uuid.uuid4().hex,
            level=level,
            timeout_s=240,
            sign_in=sign_in,
        )
        job = SandboxedJob(request._replace(grace_s=3.0))
        return run_agent(job, harness.make_parser(task, job))


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("kind", ["claude_code", "codex", "opencode"])
def test_a_person_who_is_signed_in_needs_no_key(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Standin(Shell(f"echo {TOKEN}"), Say("done")) as model:
        person = signed_in(kind, model.url)
        for name, value in person.env.items():
            monkeypatch.setenv(name, value)
        file = tmp_path / "person" / person.file
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(person.content))
        ran = run_signed_in(person, tmp_path / "person", tmp_path)
    assert ran.report.ending is Ending.COMPLETED, (ran.report, ran.finished.stderr[-2000:])
    sent = [
        {name.lower(): value for name, value in seen.headers.items()} for seen in model.questions
    ]
    assert {headers.get("authorization") for headers in sent} == {f"Bearer {TOKEN}"}
    assert TOKEN not in ran.finished.stdout + ran.finished.stderr
    assert json.loads(file.read_text()) == person.content
    assert not (tmp_path / "job/home" / person.file).exists()
