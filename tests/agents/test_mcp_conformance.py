"""The official conformance suite against `phasegate mcp`: every scenario that needs no fixture of its own.

The suite speaks HTTP, our server stdio: a bridge is between them.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from threading import Event

import pytest

from support.feature_run import DESCRIPTION, TYPE, judges, make_feature_run

PROGRAMS = os.environ.get("PHASEGATE_TEST_CONFORMANCE", "")
# The others call tools, prompts and resources of the suite's own server, or capabilities that are
# not declared (logging, completion, subscriptions); dns-rebinding tests the bridge.
SCENARIOS = (
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "prompts-list",
    "server-sse-multiple-streams",
)
pytestmark = pytest.mark.skipif(not PROGRAMS, reason="run `make test-agents`")


def run_suite(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [f"{PROGRAMS}/node", f"{PROGRAMS}/conformance", "server", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


def _is_open(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("conformance")
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    for name in [name for name in os.environ if name.startswith("PHASEGATE_TEST_")]:
        # The server would refuse it as an unknown setting
        monkeypatch.delenv(name)
    run = make_feature_run(folder)
    run.play(judges("challenge", "PASS"))
    run.run("start", TYPE, DESCRIPTION)
    # A port that was free a moment ago
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    bridge = [f"{PROGRAMS}/node", f"{PROGRAMS}/mcp-proxy", "--host", "127.0.0.1"]
    options = ["--port", str(port), "--server", "stream", "--debug"]
    # The bridge hands on only a few variables
    state = f"XDG_STATE_HOME={os.environ['XDG_STATE_HOME']}"
    server = ["--", "env", state, sys.executable, "-m", "phasegate", "mcp"]
    # A file, not a pipe: the server under the bridge would keep a pipe open
    with (
        (folder / "bridge.log").open("w") as log,
        subprocess.Popen(
            [*bridge, *options, *server], cwd=run.root, stdout=log, stderr=log
        ) as process,
    ):
        while not _is_open(port):
            assert process.poll() is None, (folder / "bridge.log").read_text()
            Event().wait(0.2)
        yield f"http://127.0.0.1:{port}/mcp"
        process.kill()
    monkeypatch.undo()


def test_all_scenarios_of_the_suite_are_known() -> None:
    argv = [f"{PROGRAMS}/node", f"{PROGRAMS}/conformance", "list", "--server"]
    listed = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout
    assert [name for name in SCENARIOS if f"- {name} " not in listed] == []
    assert listed.count("  - ") == 32, (
        "a new version has other scenarios: see which need no fixture"
    )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_passes(address: str, scenario: str) -> None:
    done = run_suite("--url", address, "--scenario", scenario)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_a_scenario_that_needs_a_fixture_fails(address: str) -> None:
    """The control: the suite does find what is missing."""
    assert run_suite("--url", address, "--scenario", "tools-call-simple-text").returncode != 0
