"""How a version stands to the ones that we know of."""

from __future__ import annotations

import pytest

from phasegate.core.agents.harnesses import INSTALLABLE_HARNESSES
from phasegate.core.text.versions import VersionStatus, compare_version


@pytest.mark.demand("D3.k")
@pytest.mark.parametrize(
    ("version", "standing"),
    [
        ("2.1.325", VersionStatus.TESTED),
        ("2.1.325-beta.1", VersionStatus.TESTED),
        ("2.1.99", VersionStatus.OLDER),
        ("2.1.100", VersionStatus.OLDER),
        ("2.0.9", VersionStatus.TOO_OLD),
        ("1.99.999", VersionStatus.TOO_OLD),
        ("2.1.326", VersionStatus.NEWER),
        ("2.2", VersionStatus.NEWER),
        ("10.0.0", VersionStatus.NEWER),
        ("", VersionStatus.UNKNOWN),
        ("latest", VersionStatus.UNKNOWN),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, standing: VersionStatus) -> None:
    assert compare_version(version, "2.1.52", "2.1.325") is standing


def test_without_a_tested_version_nothing_can_be_said() -> None:
    assert compare_version("1.2.3", "", "") is VersionStatus.UNKNOWN


def test_without_an_oldest_version_none_is_too_old() -> None:
    assert compare_version("0.0.1", "", "2.1.325") is VersionStatus.OLDER


def test_no_tested_version_is_too_old() -> None:
    for row in INSTALLABLE_HARNESSES.values():
        if row.tested_version:
            assert (
                compare_version(
                    row.min_version or row.tested_version, row.min_version, row.tested_version
                )
                is not VersionStatus.TOO_OLD
            )
