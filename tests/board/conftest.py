"""A real browser: `make test-board` installs it and says where."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

BROWSER, AXE = (
    os.environ.get("PHASEGATE_TEST_BROWSER", ""),
    os.environ.get("PHASEGATE_TEST_AXE", ""),
)


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    if not BROWSER:
        pytest.skip("there is no browser: run `make test-board`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def axe() -> str:
    return Path(AXE).read_text(encoding="utf-8")
