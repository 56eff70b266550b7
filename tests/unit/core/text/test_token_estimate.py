"""The token estimate against counts made with six public tokenizers (tools/count_tokens.py)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phasegate.core.text.token_estimate import estimate_tokens
from support.growth import assert_grows_no_faster_than_its_input

SAMPLES = Path(__file__).parents[3] / "golden" / "tokens"
COUNTS: dict[str, dict[str, int]] = json.loads((SAMPLES / "counts.json").read_text())


def test_the_samples_cover_code_prose_cjk_and_base64_with_six_tokenizers() -> None:
    assert {name.partition("-")[0] for name in COUNTS} == {"code", "prose", "cjk", "base64"}
    assert {*COUNTS} == {path.name for path in SAMPLES.glob("*.txt")}
    assert {len(counts) for counts in COUNTS.values()} == {6}


@pytest.mark.demand("P4.a")
@pytest.mark.parametrize("name", COUNTS)
def test_the_estimate_is_never_below_the_largest_count_and_at_most_twice_above(name: str) -> None:
    real = max(COUNTS[name].values())
    assert real <= estimate_tokens((SAMPLES / name).read_text(encoding="utf-8")) <= 2 * real


@pytest.mark.demand("P4.a")
@pytest.mark.parametrize("name", COUNTS)
def test_the_lines_together_cost_at_least_what_the_text_costs(name: str) -> None:
    text = (SAMPLES / name).read_text(encoding="utf-8")
    assert sum(map(estimate_tokens, text.splitlines(keepends=True))) >= estimate_tokens(text)


@pytest.mark.demand("P4.a")
def test_an_estimate_is_zero_only_for_no_text_and_takes_any_text() -> None:
    assert estimate_tokens("") == 0
    for text in ("a", " ", "\n", "é", "\ud800", "\udcff", "\x00", "👩‍💻", "\U0010ffff"):
        assert estimate_tokens(text) >= 1


@pytest.mark.demand("P4.a")
def test_estimating_grows_no_faster_than_the_text() -> None:
    text = (SAMPLES / "code-rust.txt").read_text()
    assert_grows_no_faster_than_its_input(estimate_tokens, text.__mul__, 100, 800)
