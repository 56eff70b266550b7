"""What all tests share: hypothesis profiles and a bare environment for git."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much]
settings.register_profile(
    "default", max_examples=150, deadline=None, derandomize=True, suppress_health_check=_QUIET
)
settings.register_profile(
    "nightly", max_examples=10_000, deadline=None, suppress_health_check=_QUIET
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
# `python3` is an interpreter here, not a version manager's script that starts ten programs to find one.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.base_prefix) / "bin"), os.environ["PATH"]])
# Also for what is made once for a module or a session, before the fixture below holds: a fresh machine has no identity.
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Test"), ("EMAIL", "test@example.invalid"))
}
os.environ.update(IDENTITY)
# The repositories of the tests are their own; tests of trust remove it (support.trust).
os.environ["PHASEGATE_TRUST"] = "1"
# A shell that starts the tests in the background, or `nohup`, leaves these ignored in all child processes.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Many tests wait for time to pass or for a disk; two more workers than processors keep those busy meanwhile."""
    return (
        len(os.sched_getaffinity(0)) + 2
        if hasattr(os, "sched_getaffinity")
        else (os.cpu_count() or 1) + 2
    )


def pytest_collection_finish() -> None:
    """Eight thousand tests are there until the end: the collector need not look through them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def bare_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No setting of the person who runs the tests reaches them: home, git configuration, our own variables."""
    for name in [*os.environ]:
        if name.startswith(("PHASEGATE_", "AGILEPLUS_", "GIT_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PHASEGATE_TRUST", "1")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path_factory.getbasetemp() / "home"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)
