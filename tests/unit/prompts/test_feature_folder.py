"""A feature's documents against each other (D15)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from phasegate.core.plan.consistency import to_anchor
from phasegate.errors import ConfigError
from phasegate.interfaces.cli.commands.spec import spec
from phasegate.prompts.feature_folder import check_feature_path
from phasegate.prompts.package_writer import render_package
from support.packages import login_plan, minimal

SPEC = """<!-- spec-kitty: validated -->
<!-- spec-kitty: fr-count: 2 -->
# Feature
<!-- sk:fr id="FR-A-001" priority="high" -->
- One
<!-- /sk:fr -->
<!-- sk:fr id="FR-A-002" priority="low" -->
- Two
<!-- /sk:fr -->
"""
TASKS = """- [ ] 1.1 One
  - File: src/one.py
  - Spec: FR-A-001, specs/one.md#The heading!
- [ ] 2.1 Two
  - File: src/two.py
  - Spec: FR-A-002
"""


class Folder:
    """A feature's folder that is right, to be made wrong."""

    def __init__(self, root: Path) -> None:
        self.path = root / "001-one"
        (self.path / "tasks").mkdir(parents=True)
        (self.path / "specs").mkdir()
        self.put("spec.md", SPEC)
        self.put("tasks.md", TASKS)
        self.put("specs/one.md", "# One\n\n## The heading!\n")
        self.put_package("WP01", requirements=("FR-A-001",), tasks=("1.1",))
        self.put_package(
            "WP02", requirements=("FR-A-002",), tasks=("2.1",), file_scope=("src/two.py",)
        )

    def put(self, name: str, text: str) -> None:
        (self.path / name).write_text(text, encoding="utf-8")

    def put_package(self, id_: str, name: str = "", **fields: object) -> None:
        self.put(
            f"tasks/{name or id_}.md",
            render_package(minimal(work_package_id=id_, **fields), login_plan()),
        )

    def codes(self) -> list[str]:
        return [found.code for found in check_feature_path(self.path).findings]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_documents_that_agree_have_no_findings(folder: Folder) -> None:
    report = check_feature_path(folder.path)
    assert report.findings == ()
    assert report.notes == ()
    assert (report.requirements, report.tasks, report.packages) == (2, 2, 2)


@pytest.mark.demand("D15.b")
def test_a_requirement_that_no_package_covers_is_listed(folder: Folder) -> None:
    folder.put_package("WP02", tasks=("2.1",), file_scope=("src/two.py",))
    (found,) = check_feature_path(folder.path).findings
    assert (found.path, found.line, found.code) == (str(folder.path / "spec.md"), 7, "uncovered")
    assert "FR-A-002" in found.message


def test_without_packages_the_tasks_must_cover_every_requirement(folder: Folder) -> None:
    for name in ("WP01", "WP02"):
        (folder.path / f"tasks/{name}.md").unlink()
    assert folder.codes() == []
    folder.put("tasks.md", TASKS.replace("FR-A-002", "FR-A-001"))
    assert folder.codes() == ["uncovered"]


@pytest.mark.demand("D15.c")
def test_a_requirement_that_is_not_in_the_specification_is_reported(folder: Folder) -> None:
    folder.put_package(
        "WP02", requirements=("FR-A-002", "FR-A-003"), tasks=("2.1",), file_scope=("src/two.py",)
    )
    folder.put("tasks.md", TASKS.replace("Spec: FR-A-002", "Spec: FR-A-002, FR-B-9"))
    assert sorted(folder.codes()) == ["unknown-reference", "unknown-requirement"]


@pytest.mark.parametrize(
    "reference", ["specs/two.md", "specs/one.md#other", "../x.md", "some words", "/etc/passwd"]
)
def test_a_reference_to_nothing_is_reported(folder: Folder, reference: str) -> None:
    folder.put("tasks.md", TASKS.replace("FR-A-002", f"FR-A-002, {reference}"))
    assert folder.codes() == ["unknown-reference"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"tasks": ("3.1",)}, "unknown-task"),
        ({"feature_slug": "002-two"}, "plan"),
        ({"profile": "cobol"}, "unknown-profile"),
        ({"dependencies": ("WP09",)}, "plan"),
        ({"name": "WP05"}, "wrong-name"),
    ],
)
def test_a_package_that_does_not_fit_is_reported(
    folder: Folder, fields: dict[str, object], code: str
) -> None:
    known = {"requirements": ("FR-A-002",), "tasks": ("2.1",), "file_scope": ("src/two.py",)}
    if "name" in fields:
        (folder.path / "tasks/WP02.md").unlink()
    folder.put_package("WP02", **{**known, **fields})  # type: ignore[arg-type]
    assert code in folder.codes()


@pytest.mark.demand("D5.g")
def test_a_cycle_of_packages_is_reported_with_its_members(folder: Folder) -> None:
    folder.put_package("WP01", requirements=("FR-A-001",), dependencies=("WP02",))
    folder.put_package(
        "WP02", requirements=("FR-A-002",), dependencies=("WP01",), file_scope=("src/two.py",)
    )
    (found,) = check_feature_path(folder.path).findings
    assert "WP01 -> WP02 -> WP01" in found.message
    assert found.line == 5  # the line of `dependencies`


@pytest.mark.demand("D15.c")
def test_a_specification_without_annotations_is_taken_and_said_to_be_unannotated(
    folder: Folder,
) -> None:
    folder.put("spec.md", "# Spec\n- **FR-A-001:** One\n- **FR-A-002:** Two\n")
    report = check_feature_path(folder.path)
    assert report.findings == ()
    assert [note.code for note in report.notes] == ["unannotated"]
    assert report.requirements == 2


def test_a_folder_with_packages_alone_is_enough(folder: Folder) -> None:
    for name in ("spec.md", "tasks.md"):
        (folder.path / name).unlink()
    report = check_feature_path(folder.path)
    assert report.findings == ()
    assert [note.code for note in report.notes] == ["no-spec"]


def test_spec_kitty_s_own_task_list_is_passed_over_beside_packages(folder: Folder) -> None:
    folder.put("tasks.md", "# Work Packages\n- [ ] T001 Create the folder\n")
    report = check_feature_path(folder.path)
    assert {note.code for note in report.notes} == {"no-tasks"}


def test_a_folder_of_features_is_checked_feature_by_feature(folder: Folder) -> None:
    other = Folder(folder.path.parent / "more")
    other.path.rename(folder.path.parent / "002-two")
    report = check_feature_path(folder.path.parent)
    assert {found.code for found in report.findings} == {"wrong-slug"}
    assert report.packages == 4


def test_one_document_can_be_checked_alone(folder: Folder) -> None:
    assert check_feature_path(folder.path / "spec.md").findings == ()
    assert check_feature_path(folder.path / "tasks.md").findings == ()
    assert check_feature_path(folder.path / "tasks/WP01.md").findings == ()
    folder.put("notes.md", SPEC.replace("fr-count: 2", "fr-count: 3"))
    assert [found.code for found in check_feature_path(folder.path / "notes.md").findings] == [
        "false-count"
    ]


def test_a_path_with_nothing_to_check_is_the_person_s_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        check_feature_path(tmp_path / "absent")
    with pytest.raises(ConfigError, match=r"has no spec\.md"):
        check_feature_path(tmp_path)


@pytest.mark.parametrize(
    ("heading", "expected"),
    [("The heading!", "the-heading"), ("A/B: c_d", "ab-c_d"), ("Ä ö", "ä-ö")],
)
def test_headings_are_named_as_links_name_them(heading: str, expected: str) -> None:
    assert to_anchor(heading) == expected


def test_the_command_prints_a_line_a_finding_and_exits_with_one(folder: Folder) -> None:
    folder.put("spec.md", SPEC.replace("fr-count: 2", "fr-count: 9"))
    command = [sys.executable, "-m", "phasegate", "spec", "check", str(folder.path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    first = (
        f"{folder.path / 'spec.md'}:2: false-count fr-count is 9, but 2 requirements are annotated"
    )
    assert ran.stdout.split("\n")[0] == first
    assert ran.stderr == ""
    folder.put("spec.md", SPEC)
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_the_command_speaks_json(folder: Folder) -> None:
    folder.put("spec.md", SPEC.replace("fr-count: 2", "fr-count: 9"))
    result = CliRunner().invoke(spec, ["check", str(folder.path), "--json"], standalone_mode=False)
    said = json.loads(result.stdout)
    assert said["ok"] is False
    assert said["findings"][0] == {
        "path": str(folder.path / "spec.md"),
        "line": 2,
        "code": "false-count",
        "message": "fr-count is 9, but 2 requirements are annotated",
    }
    assert (said["requirements"], said["tasks"], said["packages"]) == (2, 2, 2)


def test_the_check_loads_nothing_that_is_only_for_display(folder: Folder) -> None:
    code = "import sys; from phasegate.interfaces.cli.main import run_command; run_command(sys.argv[1:]); print(sorted(sys.modules))"
    command = [sys.executable, "-c", code, "spec", "check", str(folder.path)]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for module in ("rich", "pathspec", "asyncio", "tomllib", "importlib.resources"):
        assert f"'{module}'" not in loaded


def test_a_specification_by_another_name_is_reported_under_its_own(tmp_path: Path) -> None:
    (tmp_path / "login.md").write_bytes(b"\xff")
    (found,) = check_feature_path(tmp_path / "login.md").findings
    assert found.path == str(tmp_path / "login.md")
