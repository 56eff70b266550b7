"""`phasegate prompt` and `phasegate template`, as a person meets them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema_rs
import pytest

from phasegate import UnifiedPrompt, load_system_template
from phasegate.core.prompt.template import AgentPhase
from phasegate.prompts.templates import SHIPPED_FOLDER
from support import entry
from support.prompt_schemas import SYSTEM_TEMPLATE_METADATA, UNIFIED_PROMPT


def phasegate(*arguments: str, cwd: Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    done = entry.phasegate(*arguments, cwd=cwd, stdin=stdin)
    return subprocess.CompletedProcess(
        arguments, done.code, done.stdout.encode(), done.stderr.encode()
    )


def show(
    project: Path, *arguments: str, phase: str = "review", stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return phasegate(
        "prompt", "show", "--phase", phase, "--agent", "codex", *arguments, cwd=project, stdin=stdin
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / "agentd").mkdir()
    (tmp_path / "agentd/project.md").write_text("A shop in Go.\n")
    (tmp_path / "a.py").write_bytes(b"print(1 < 2)\r\n")
    (tmp_path / "plan.md").write_text("# Plan\n")
    return tmp_path


@pytest.mark.demand("P2.a", "P5.a", "T3.a", "T3.b")
def test_show_writes_exactly_the_xml(project: Path) -> None:
    shown = show(
        project,
        "--file",
        "a.py",
        "--artifact",
        "plan.md",
        "--thought",
        "why?",
        "--thought",
        "so",
        "Review it",
    )
    assert (shown.returncode, shown.stderr) == (0, b"")
    prompt = UnifiedPrompt.from_xml(shown.stdout.decode())
    assert prompt.to_xml().encode() == shown.stdout
    assert [(item.type, item.name, item.content) for item in prompt.context] == [
        ("artifact", "plan.md", "# Plan\n"),
        ("file", "a.py", "print(1 < 2)\r\n"),
        ("thought", None, "why?"),
        ("thought", None, "so"),
    ]
    assert prompt.instructions == "Review it"
    assert prompt.system_prompt is not None
    assert "A shop in Go." in prompt.system_prompt
    assert "\na.py\n" in prompt.system_prompt


@pytest.mark.demand("M1.c")
def test_the_sizes_of_all_parts_add_up_to_the_prompt(project: Path) -> None:
    arguments = ("--file", "a.py", "--artifact", "plan.md", "Review it")
    xml = show(project, *arguments).stdout.decode()
    told = json.loads(show(project, "--sizes", "--json", *arguments).stdout)
    tokens = {f"{one['part']} {one['name']}".strip(): one["tokens"] for one in told["parts"]}
    assert sum(one["tokens"] for one in told["parts"]) == told["tokens"] == len(xml) // 4
    assert {"template", "project", "tree", "documents plan.md", "files a.py"} <= tokens.keys()
    assert tokens["files a.py"] == len("print(1 < 2)\r\n") // 4
    lines = show(project, "--sizes", *arguments).stdout.decode().splitlines()
    assert lines[-1].split()[:2] == [str(told["tokens"]), "total;"]


@pytest.mark.demand("P4.a", "P4.b", "P4.c")
def test_a_budget_is_kept_and_what_is_left_out_goes_to_stderr(project: Path) -> None:
    for number in range(30):
        (project / f"f{number}.py").write_text("value = compute(1, 2, 3)\n" * 100)
    files = [argument for number in range(30) for argument in ("--file", f"f{number}.py")]
    shown = show(project, *files, "--budget", "20000", "Review it")
    assert shown.returncode == 0
    prompt = UnifiedPrompt.from_xml(shown.stdout.decode())
    there = {item.name for item in prompt.context}
    left_out = {
        line.removeprefix("omitted: ")
        for line in shown.stderr.decode().splitlines()
        if "omitted" in line
    }
    assert left_out
    assert {f"f{number}.py" for number in range(30)} <= there | left_out
    assert all(name in prompt.context[-1].content for name in left_out)


@pytest.mark.demand("P3.a")
def test_a_budget_that_is_large_enough_changes_nothing(project: Path) -> None:
    arguments = ("--file", "a.py", "--artifact", "plan.md", "--thought", "x", "Go")
    assert (
        show(project, *arguments).stdout == show(project, *arguments, "--budget", "1000000").stdout
    )


@pytest.mark.demand("P1.b", "P4.c")
def test_json_holds_the_prompt_of_the_published_schema(project: Path) -> None:
    (project / "odd").write_bytes(b"\xff\x00")
    shown = show(project, "--file", "odd", "--json", "Review it")
    data = json.loads(shown.stdout)
    assert jsonschema_rs.is_valid(UNIFIED_PROMPT, {**data["prompt"], "context": []})
    assert data["prompt"]["context"][0] == {"type": "file", "name": "odd", "content": "\udcff\x00"}
    assert data["hidden"][0] == {"item": "odd", "character": "U+DCFF", "line": 1}
    assert data["tokens"] > 1_000
    assert b"hidden character: odd, line 1: U+DCFF" in shown.stderr


def test_instructions_can_come_from_stdin(project: Path) -> None:
    shown = show(project, "-", stdin="Prüfe <das>".encode())
    assert "<instructions>Prüfe &lt;das&gt;</instructions>".encode() in shown.stdout


@pytest.mark.demand("T3.b", "W7.i")
def test_the_skeletons_are_those_of_the_phase(project: Path) -> None:
    shown = show(project, "--workflow-phase", "05-test-strategy", "Go", phase="plan").stdout
    assert b"Skeleton of `test-strategy.md`" in shown
    assert b"Skeleton of `tasks.md`" in shown
    assert b"Skeleton of `proposal.md`" not in shown


@pytest.mark.demand("P4.c")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--file", "nothing.py", "x"), "cannot read nothing.py"),
        (("--file", ".", "x"), "it is a folder"),
        (("--budget", "10", "x"), "the budget is 10"),
        (("--budget", "-1", "x"), "--budget"),
        ((), "INSTRUCTIONS"),
    ],
)
def test_what_cannot_be_done_is_said_and_exits_with_2(
    project: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = show(project, *arguments)
    assert done.returncode == 2
    assert message in done.stderr.decode()


def test_the_commands_work_from_any_folder_inside(project: Path) -> None:
    (project / "templates/system").mkdir(parents=True)
    (project / "templates/system/CODEX-review.md").write_text("ours {{PROJECT_CONTEXT}}")
    (project / "deep/er").mkdir(parents=True)
    assert phasegate(
        "template", "show", "codex", "review", cwd=project / "deep/er"
    ).stdout.startswith(b"ours")
    assert b"ours A shop in Go." in show(project / "deep/er", "x").stdout


@pytest.mark.demand("T1.a", "T2.a")
def test_list_shows_the_projects_own_and_the_shipped(project: Path) -> None:
    (project / "templates/system").mkdir(parents=True)
    (project / "templates/system/BASE-plan.md").write_text("ours")
    rows = json.loads(phasegate("template", "list", "--json", cwd=project).stdout)
    sources = {(row["agent"], row["phase"]): row["source"] for row in rows}
    assert sources["BASE", "plan"] == "project"
    assert sources["CLAUDE", "implement"] == "shipped"
    assert {phase for agent, phase in sources if agent == "BASE"} == set(AgentPhase)
    assert b"BASE       plan       project" in phasegate("template", "list", cwd=project).stdout


@pytest.mark.demand("T4.e", "T4.c")
def test_lint_passes_on_what_is_shipped_and_finds_what_is_wrong(project: Path) -> None:
    assert phasegate("template", "lint", cwd=project).returncode == 0
    folder = project / "templates/system"
    folder.mkdir(parents=True)
    text = load_system_template("BASE", "plan", root=project)
    (folder / "CLAUDE-plan.md").write_text(text.replace("{{SKELETON}}", "{{SKELTON}}"))
    (folder / "notes.md").write_text("x")
    found = phasegate("template", "lint", cwd=project)
    assert found.returncode == 1
    line = text[: text.index("{{SKELETON}}")].count("\n") + 1
    lines = found.stdout.decode().splitlines()
    assert any(f"CLAUDE-plan.md:{line}: unknown-placeholder " in one for one in lines)
    assert any(
        "CLAUDE-plan.md:1: missing-placeholder there is no {{SKELETON}}" in one for one in lines
    )
    assert any("notes.md:1: bad-name " in one for one in lines)
    as_json = json.loads(
        phasegate("template", "lint", "--json", str(folder / "notes.md"), cwd=project).stdout
    )
    assert [one["code"] for one in as_json["findings"]] == ["bad-name"]
    assert phasegate("template", "lint", "nowhere.md", cwd=project).returncode == 2


@pytest.mark.demand("T4.a", "T4.b")
def test_metadata_is_json_of_the_published_schema(project: Path) -> None:
    path = str(SHIPPED_FOLDER / "GEMINI-plan.md")
    data = json.loads(phasegate("template", "metadata", path, "--json", cwd=project).stdout)
    assert jsonschema_rs.is_valid(SYSTEM_TEMPLATE_METADATA, data)
    assert (data["agent"], data["phase"]) == ("GEMINI", "plan")
    assert phasegate("template", "metadata", "README.md", cwd=project).returncode == 2


@pytest.mark.demand("T1.g")
def test_eject_copies_once_and_never_overwrites_unasked(project: Path) -> None:
    path = project / "templates/system/CLAUDE-implement.md"
    assert phasegate("template", "eject", "claude", "implement", cwd=project).returncode == 0
    assert path.read_text() == (SHIPPED_FOLDER / path.name).read_text()
    path.write_text("changed")
    again = phasegate("template", "eject", cwd=project)
    assert again.returncode == 1
    assert f"kept {path.relative_to(project)}" in again.stdout.decode()
    assert path.read_text() == "changed"
    assert {file.name for file in path.parent.iterdir()} == {
        file.name for file in SHIPPED_FOLDER.iterdir()
    }
    assert (
        phasegate("template", "eject", "claude", "implement", "--force", cwd=project).returncode
        == 0
    )
    assert path.read_text() != "changed"
    assert phasegate("template", "eject", "claude", cwd=project).returncode == 2


@pytest.mark.demand("T1.h")
def test_eject_writes_through_no_link(project: Path) -> None:
    target = project / "precious"
    target.write_text("precious")
    folder = project / "templates/system"
    folder.mkdir(parents=True)
    (folder / "BASE-plan.md").symlink_to(target)
    assert phasegate("template", "eject", "base", "plan", cwd=project).returncode == 1
    assert phasegate("template", "eject", "base", "plan", "--force", cwd=project).returncode == 0
    assert target.read_text() == "precious"
    assert not (folder / "BASE-plan.md").is_symlink()


@pytest.mark.demand("T1.d")
def test_an_unknown_agent_or_phase_exits_with_2(project: Path) -> None:
    for agent, phase in (("nobody", "plan"), ("claude", "PLAN"), ("../../x", "plan")):
        done = phasegate("template", "show", agent, phase, cwd=project)
        assert done.returncode == 2
        assert b"TemplateNotFound" in done.stderr


def test_help_has_examples(project: Path) -> None:
    for command in (
        ["prompt", "show"],
        *(["template", name] for name in ("list", "show", "lint", "metadata", "eject")),
    ):
        assert b"Example" in phasegate(*command, "--help", cwd=project).stdout


def test_the_prompt_of_a_recorded_run_is_shown_byte_for_byte(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    folder = tmp_path / ".phasegate/jobs/some-job"
    folder.mkdir(parents=True)
    (folder / "prompt.xml").write_bytes(b"<prompt>\n</prompt>")
    command = [sys.executable, "-m", "phasegate", "prompt", "show", "--job"]
    shown = subprocess.run([*command, "some-job"], cwd=tmp_path, capture_output=True, timeout=60)
    assert (shown.returncode, shown.stdout.rstrip(b"\n")) == (0, b"<prompt>\n</prompt>")
    for missing in ("another-job", "../../x", ""):
        shown = subprocess.run([*command, missing], cwd=tmp_path, capture_output=True, timeout=60)
        assert (shown.returncode, shown.stdout) == (2, b"")
