"""A real S3 server: `make test-fleet` installs it and says where."""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest

from support.s3_server import ACCESS, SECRET, S3Server
from support.temporal_server import TemporalServer

PROGRAM = os.environ.get("PHASEGATE_TEST_S3_SERVER", "")
TEMPORAL = os.environ.get("PHASEGATE_TEST_TEMPORAL", "")


@pytest.fixture(scope="session")
def s3_program() -> str:
    if not PROGRAM:
        pytest.skip("there is no S3 server: run `make test-fleet`")
    return PROGRAM


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory, s3_program: str) -> Iterator[S3Server]:
    server = S3Server(s3_program, tmp_path_factory.mktemp("s3"))
    server.start()
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def temporal_program() -> str:
    if not TEMPORAL:
        pytest.skip("there is no Temporal server: run `make test-fleet`")
    return TEMPORAL


@pytest.fixture(scope="session")
def temporal(
    tmp_path_factory: pytest.TempPathFactory, temporal_program: str
) -> Iterator[TemporalServer]:
    server = TemporalServer(temporal_program, tmp_path_factory.mktemp("temporal"))
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
def prefix() -> str:
    """A part of the bucket that is this test's alone."""
    return f"test-{uuid4()}"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
