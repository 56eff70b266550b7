"""How a version stands to the ones that we know of."""

from __future__ import annotations

import pytest

from phasegate.core.agents.harnesses import KNOWN
from phasegate.core.text.versions import VersionStanding, standing_of_version


@pytest.mark.demand("D3.k")
@pytest.mark.parametrize(
    ("version", "standing"),
    [
        ("2.1.325", VersionStanding.TESTED),
        ("2.1.325-beta.1", VersionStanding.TESTED),
        ("2.1.99", VersionStanding.OLDER),
        ("2.1.100", VersionStanding.OLDER),
        ("2.0.9", VersionStanding.TOO_OLD),
        ("1.99.999", VersionStanding.TOO_OLD),
        ("2.1.326", VersionStanding.NEWER),
        ("2.2", VersionStanding.NEWER),
        ("10.0.0", VersionStanding.NEWER),
        ("", VersionStanding.UNKNOWN),
        ("latest", VersionStanding.UNKNOWN),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, standing: VersionStanding) -> None:
    assert standing_of_version(version, "2.1.52", "2.1.325") is standing


def test_without_a_tested_version_nothing_can_be_said() -> None:
    assert standing_of_version("1.2.3", "", "") is VersionStanding.UNKNOWN


def test_without_an_oldest_version_none_is_too_old() -> None:
    assert standing_of_version("0.0.1", "", "2.1.325") is VersionStanding.OLDER


def test_no_tested_version_is_too_old() -> None:
    for row in KNOWN.values():
        if row.tested:
            assert standing_of_version(row.oldest or row.tested, row.oldest, row.tested) is not VersionStanding.TOO_OLD
