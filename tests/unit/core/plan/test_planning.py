"""The kinds of files that a plan names."""

from __future__ import annotations

import pytest

from phasegate.core.plan.planning import classify_file


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("tests/any.js", "tests"),
        ("src/form.spec.ts", "tests"),
        # tsd: the tests of type definitions
        ("typings/index.test-d.ts", "tests"),
        ("typings/index.d.ts", "code"),
        ("src/contest-data.ts", "code"),
        ("README.md", "documentation"),
    ],
)
def test_a_file_is_classified_by_its_path_and_name(path: str, kind: str) -> None:
    assert classify_file(path) == kind
