"""Real agent programs only: `make test-agents` installs them and says where."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

INSTALLED = os.environ.get("PHASEGATE_TEST_AGENTS", "")
MISSING = os.environ.get("PHASEGATE_TEST_AGENTS_MISSING") or "run `make test-agents`"


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the installed programs; without it every test that needs it is skipped."""
    if not INSTALLED:
        pytest.skip(f"the real agent programs are not installed: {MISSING}")
    return Path(INSTALLED)
