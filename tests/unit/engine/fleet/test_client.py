"""How a machine proves who it is to the Temporal server."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.service import TLSConfig

from phasegate.config.settings import FleetSettings
from phasegate.engine.fleet.client import make_worker_identity, read_server_access
from phasegate.engine.fleet.server_query import split_worker_identity
from phasegate.errors import EnvironmentUnavailable


def test_without_settings_the_connection_is_plain(tmp_path: Path) -> None:
    assert read_server_access(FleetSettings(), {}, tmp_path) == (False, None)
    assert read_server_access(FleetSettings(tls=True), {}, tmp_path) == (True, None)


def test_an_api_key_is_never_sent_without_encryption(tmp_path: Path) -> None:
    settings = FleetSettings(api_key_env="TEMPORAL_API_KEY", tls=False)
    assert read_server_access(settings, {"TEMPORAL_API_KEY": "k\n"}, tmp_path) == (True, "k")
    with pytest.raises(EnvironmentUnavailable, match="TEMPORAL_API_KEY is not set"):
        read_server_access(settings, {}, tmp_path)


def test_certificates_are_read_and_a_missing_one_is_named(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / f"{name}.pem").write_text(name)
    settings = FleetSettings(
        tls_ca_file="ca.pem",
        tls_cert_file=str(tmp_path / "cert.pem"),
        tls_key_file="key.pem",
        tls_server_name="temporal.test",
    )
    tls = read_server_access(settings, {}, tmp_path).tls
    assert isinstance(tls, TLSConfig)
    assert (tls.server_root_ca_cert, tls.client_cert, tls.client_private_key, tls.domain) == (
        b"ca",
        b"cert",
        b"key",
        "temporal.test",
    )
    with pytest.raises(EnvironmentUnavailable, match=r"none\.pem"):
        read_server_access(FleetSettings(tls_ca_file="none.pem"), {}, tmp_path)


def test_a_worker_is_listed_with_its_version() -> None:
    name, version = split_worker_identity(make_worker_identity())
    assert ("@" in name, version[:1].isdigit()) == (True, True)
    assert split_worker_identity("12@old") == ("12@old", "")
