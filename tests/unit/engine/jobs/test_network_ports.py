"""Ports and a data folder for each job (R5)."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from phasegate.engine.jobs.network_ports import reserve_ports_and_data


@pytest.mark.demand("R5.d")
def test_jobs_side_by_side_have_no_port_in_common_and_each_can_bind_its_own(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    with (
        reserve_ports_and_data(folders[0], tmp_path / "locks") as one,
        reserve_ports_and_data(folders[1], tmp_path / "locks") as two,
    ):
        ports = [*one["PHASEGATE_PORTS"].split(), *two["PHASEGATE_PORTS"].split()]
        assert len(set(ports)) == 20
        assert one["PORT"] in ports
        assert Path(one["PHASEGATE_DATA"]) == folders[0] / "data"
        with socket.create_server(("127.0.0.1", int(two["PORT"]))):
            pass


@pytest.mark.demand("R5.d")
def test_a_block_with_a_port_that_somebody_listens_on_is_not_given_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.urandom", lambda _: b"\0\0")  # the first block is asked for first
    with reserve_ports_and_data(tmp_path, tmp_path / "locks") as free:
        first = int(free["PORT"])
    with (
        socket.create_server(("127.0.0.1", first + 3)),
        reserve_ports_and_data(tmp_path, tmp_path / "locks") as other,
    ):
        assert other["PORT"] != str(first)
