"""Many features at once, to their end. Long: LONG=1 make test-fleet."""

from __future__ import annotations

import pytest
from bench.fleet import GOAL, costs


@pytest.mark.long
@pytest.mark.demand("X8.o")
@pytest.mark.usefixtures("s3_program", "temporal_program")
def test_200_features_at_once_end_and_cost_as_much_each_as_40(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PHASEGATE_TEST_S3_SERVER", "PHASEGATE_TEST_TEMPORAL"):
        monkeypatch.delenv(name, raising=False)
    few, many = costs(40, 200)
    assert many.workers_s + many.server_s <= GOAL * (few.workers_s + few.server_s)
    assert many.worker_mb <= 1.5 * few.worker_mb
