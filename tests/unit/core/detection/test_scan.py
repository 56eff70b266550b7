"""Security scanners are run where the project itself uses them, and nowhere else."""

from __future__ import annotations

import pytest

from phasegate.core.detection.scan import detect_scans


@pytest.mark.parametrize(
    ("paths", "texts", "programs"),
    [
        ((".gitleaks.toml",), {}, ["gitleaks"]),
        ((), {"pyproject.toml": "[tool.bandit]\n"}, ["bandit"]),
        ((), {"requirements-dev.txt": "pip-audit\nbandit\n"}, ["bandit", "pip-audit"]),
        ((), {".github/workflows/ci.yml": "run: npm audit\n"}, ["npm"]),
        ((".semgrep.yml",), {".pre-commit-config.yaml": "semgrep"}, ["semgrep"]),
        (("README.md",), {"pyproject.toml": "[project]\n"}, []),
    ],
)
def test_a_scanner_is_found_by_its_settings_or_where_the_project_names_it(
    paths: tuple[str, ...], texts: dict[str, str], programs: list[str]
) -> None:
    assert [command.split()[0] for command in detect_scans(paths, texts)] == programs
