"""The resources that a client of the MCP server lists."""

from __future__ import annotations

from pathlib import Path

from phasegate.interfaces.mcp.resources import list_resources, read_resource
from support.git_project import make_repository

SPEC, PACKAGE = (f"kitty-specs/001-a/{name}" for name in ("spec.md", "tasks/WP01.md"))


def test_documents_of_packages_are_read_but_not_listed(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    make_repository(root, {SPEC: "# Spec\n", PACKAGE: "# Task\n"})
    assert [one["name"] for one in list_resources(root)] == ["001-a/spec.md"]
    assert read_resource(root, "phasegate://feature/001-a/tasks/WP01.md")[0] == "# Task\n"
