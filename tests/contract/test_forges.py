"""Each forge's adapter keeps the promises of `port.Forge`. `make test-forges` holds it against their descriptions."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.forge.registry import FORGES, connect_forge
from support.fake_forge import REPOSITORY, TOKEN, fake_forge
from support.forge_talk import make_source, talk


@pytest.mark.demand("X7.g")
@pytest.mark.parametrize("kind", sorted(FORGES))
def test_every_call_of_the_port_has_the_same_ends_at_every_forge(kind: str, tmp_path: Path) -> None:
    with fake_forge(kind, make_source(tmp_path), tmp_path / "forge") as fake:
        talk(connect_forge(kind, fake.url, REPOSITORY, TOKEN), fake)
