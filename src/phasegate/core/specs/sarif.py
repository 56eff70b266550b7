"""Render findings about requirements for code scanning (SARIF) and for GitHub annotations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


class SpecFinding(NamedTuple):
    """A problem with a requirement, and the line of the file where it was found."""

    requirement: str
    path: str
    line: int
    message: str


def build_sarif(findings: Iterable[SpecFinding], version: str) -> dict[str, object]:
    """Build a SARIF 2.1.0 log."""
    found = [*findings]
    rules = [
        {"id": name, "shortDescription": {"text": f"{name} and its code have drifted apart"}}
        for name in dict.fromkeys(one.requirement for one in found)
    ]
    results = [
        {
            "ruleId": one.requirement,
            "level": "warning",
            "message": {"text": one.message},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": one.path},
                        "region": {"startLine": one.line},
                    }
                }
            ],
        }
        for one in found
    ]
    driver = {"name": "phasegate", "version": version, "rules": rules}
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def render_annotation(finding: SpecFinding) -> str:
    """Render a finding as a workflow command of GitHub Actions."""
    path = _escape(finding.path).replace(":", "%3A").replace(",", "%2C")
    message = _escape(f"{finding.requirement}: {finding.message}")
    return f"::warning file={path},line={finding.line}::{message}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
