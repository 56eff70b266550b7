"""`phasegate agent-file` on real files: it changes what it was asked to, and nothing else."""

from __future__ import annotations

import json
import os
import re
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from phasegate.interfaces.cli.main import run_command
from phasegate.prompts.agent_files import SHIPPED_FOLDER, load_shipped_files
from support.agent_file_shapes import (
    CLOSING_LINES,
    HERE,
    PROTOCOL_PLACES,
    SHAPES,
    SUB_AGENTS,
    unmarked,
)

PLAIN = "---\nphases: [03-architecture]\n---\n\n# SELF-VALIDATION\n\n- [ ] sure?\n\nYou are it.\n"


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one agent file that has no section yet, and the current folder."""
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents/mine.md").write_text(PLAIN)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "agents"


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


@pytest.mark.demand("N10.m", "N10.h")
def test_sync_puts_the_section_in_once_and_says_so(
    agents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["agent-file", "sync", "agents"]) == 0
    assert said(capsys) == "agents/mine.md: synced (missing: # SUGGESTED PROMPTS)\n"
    once = (agents / "mine.md").read_bytes()
    assert b"  [2] Review architecture and ADRs\n" in once
    assert run_command(["agent-file", "sync", "agents/mine.md", "agents"]) == 0
    assert said(capsys) == "agents/mine.md: unchanged\n"
    assert (agents / "mine.md").read_bytes() == once


@pytest.mark.demand("N10.i")
def test_check_says_what_is_missing_and_writes_nothing(
    agents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (agents / "mine.md").stat()
    assert run_command(["agent-file", "check", "agents"]) == 1
    assert said(capsys) == "agents/mine.md: missing: # SUGGESTED PROMPTS\n"
    after = (agents / "mine.md").stat()
    assert (after.st_mtime_ns, after.st_ino, after.st_size) == (
        before.st_mtime_ns,
        before.st_ino,
        before.st_size,
    )
    run_command(["agent-file", "sync", "agents"])
    said(capsys)
    assert run_command(["agent-file", "check", "agents"]) == 0
    assert said(capsys) == ""


@pytest.mark.demand("N10.i")
def test_check_answers_in_json_too(agents: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["agent-file", "check", "--json", "agents"]) == 1
    findings = {"agents/mine.md": ["missing: # SUGGESTED PROMPTS"]}
    assert json.loads(said(capsys)) == {"ok": False, "checked": 1, "findings": findings}


def test_the_shipped_files_pass_the_check() -> None:
    assert run_command(["agent-file", "check", str(SHIPPED_FOLDER)]) == 0


@pytest.mark.demand("N10.l")
def test_install_copies_all_files_and_never_overwrites_a_changed_one_unasked(
    agents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = agents / "made/for/it"
    assert run_command(["agent-file", "install", str(folder)]) == 0
    assert said(capsys).count(": written\n") == 36
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        f"{f.name}.md": f.text for f in load_shipped_files()
    }

    (folder / "atdd-bridge.md").write_text("mine now\n")
    assert run_command(["agent-file", "install", str(folder)]) == 0
    again = said(capsys)
    assert again.count(": unchanged\n") == 35
    assert f"{folder}/atdd-bridge.md: kept (differs)\n" in again
    assert (folder / "atdd-bridge.md").read_text() == "mine now\n"

    assert run_command(["agent-file", "install", "--force", str(folder)]) == 0
    assert f"{folder}/atdd-bridge.md: replaced\n" in said(capsys)
    assert run_command(["agent-file", "check", str(folder)]) == 0


def test_list_names_kind_and_phases(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["agent-file", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(said(capsys))}
    assert len(rows) == 36
    assert rows["10-dev-environment-engineer"]["phases"] == ["11-local-testing", "12-remote-build"]
    assert rows["risk-assessor"]["kind"] == "sub-agent"
    assert run_command(["agent-file", "list"]) == 0
    assert "05-software-developer            phase-agent       06-implementation\n" in said(capsys)


def test_permissions_are_kept(agents: Path) -> None:
    (agents / "mine.md").chmod(0o640)
    assert run_command(["agent-file", "sync", "agents"]) == 0
    assert stat.S_IMODE((agents / "mine.md").stat().st_mode) == 0o640


def test_a_readme_in_a_folder_is_no_agent_file_but_may_be_named(agents: Path) -> None:
    (agents / "README.md").write_text("About these.\n")
    assert run_command(["agent-file", "sync", "agents"]) == 0
    assert (agents / "README.md").read_text() == "About these.\n"
    assert run_command(["agent-file", "check", "agents/README.md"]) == 1


def refuse_symlink(agents: Path) -> str:
    (agents.parent / "outside.md").write_text(PLAIN)
    (agents / "bad.md").symlink_to("../outside.md")
    return "is a symbolic link"


def refuse_linked_folder(agents: Path) -> str:
    (agents.parent / "elsewhere").mkdir()
    (agents.parent / "elsewhere/x.md").write_text(PLAIN)
    (agents / "bad.md").symlink_to("../elsewhere")
    return "is a symbolic link to a folder"


def refuse_pipe(agents: Path) -> str:
    os.mkfifo(agents / "bad.md")
    return "is not a regular file"


def refuse_bytes(agents: Path) -> str:
    (agents / "bad.md").write_bytes(b"# A\n\xff\xfe\n")
    return "is not UTF-8 (byte 4)"


def refuse_huge(agents: Path) -> str:
    with (agents / "bad.md").open("wb") as file:
        file.truncate(3_000_000_000)
    return "is larger than"


def refuse_unclosed(agents: Path) -> str:
    (agents / "bad.md").write_text("# A\n\n```\ncode\n")
    return "opens in line 3 is never closed"


def refuse_role(agents: Path) -> str:
    (agents / "bad.md").write_text("---\nrole: sub-agnet\n---\n")
    return "`role: sub-agnet` is unknown"


REFUSALS = [
    refuse_symlink,
    refuse_linked_folder,
    refuse_pipe,
    refuse_bytes,
    refuse_huge,
    refuse_unclosed,
    refuse_role,
]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_one_refused_file_leaves_all_files_as_they_were(
    refusal: object, agents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(refusal)
    reason = refusal(agents)
    assert run_command(["agent-file", "sync", "agents"]) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert "agents/bad.md" in error
    assert "hint: " in error
    assert (agents / "mine.md").read_text() == PLAIN
    assert all(path.read_text() == PLAIN for path in agents.parent.glob("[oe]*/*.md"))


@pytest.mark.parametrize(
    "refusal", [refuse_symlink, refuse_pipe, refuse_bytes, refuse_huge, refuse_unclosed]
)
def test_check_counts_a_file_that_it_cannot_judge_as_wrong(
    refusal: object, agents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(refusal)
    reason = refusal(agents)
    assert run_command(["agent-file", "check", "agents"]) == 1
    assert (
        f"agents/bad.md: {'the code fence or comment that ' if 'opens' in reason else ''}{reason}"
        in said(capsys)
    )


def test_a_link_does_not_lead_the_tool_outside_as_it_leads_a_plain_write(agents: Path) -> None:
    refuse_symlink(agents)
    outside = agents.parent / "outside.md"
    assert run_command(["agent-file", "sync", "agents/bad.md"]) == 2
    assert outside.read_text() == PLAIN
    (agents / "bad.md").write_text("positive control")  # what an unprotected tool does
    assert outside.read_text() == "positive control"


def test_install_does_not_write_through_a_link_even_when_forced(agents: Path) -> None:
    (agents.parent / "precious").write_text("keep")
    (agents / "atdd-bridge.md").symlink_to("../precious")
    assert run_command(["agent-file", "install", "--force", "agents"]) == 2
    assert (agents.parent / "precious").read_text() == "keep"


def test_a_write_that_fails_half_way_leaves_the_old_file_and_no_litter(agents: Path) -> None:
    command = [sys.executable, "-m", "phasegate", "agent-file", "sync", "agents"]
    limit = (700, 700)  # more than the old text, less than the new one
    done = subprocess.run(
        command,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "cannot write agents/mine.md: File too large" in done.stderr
    assert (agents / "mine.md").read_text() == PLAIN
    assert [path.name for path in agents.iterdir()] == ["mine.md"]


@pytest.mark.parametrize("missing", ["nowhere.md", "empty"])
def test_a_path_without_agent_files_is_an_error(
    missing: str, agents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (agents.parent / "empty").mkdir()
    assert run_command(["agent-file", "check", missing]) == 2
    assert missing in capsys.readouterr().err


def test_a_file_name_cannot_steer_the_terminal(
    agents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (agents / "\x1b[31mred\n.md").write_text(PLAIN)
    assert run_command(["agent-file", "check", "agents"]) == 1
    assert "\x1b" not in (out := said(capsys))
    assert "agents/\\x1b[31mred\\n.md: missing" in out
    (agents / "\x1b[31mred\n.md").write_bytes(b"\xff")
    assert run_command(["agent-file", "sync", "agents"]) == 2
    assert "\x1b" not in capsys.readouterr().err


WITHOUT_FRONT = {name: shape for name, shape in SHAPES.items() if not shape.startswith("---")}


@pytest.mark.demand("N10.b", "N10.c", "N10.d", "N10.e", "N10.f", "N10.j")
@pytest.mark.parametrize(
    ("role", "shapes"),
    [
        ("role: sub-agent\nparent: p\ntask: Tracing", WITHOUT_FRONT),
        ("role: orchestrator", PROTOCOL_PLACES),
    ],
    ids=["prompts", "protocol"],
)
def test_the_section_goes_to_its_place_in_files_of_every_shape(
    agents: Path, role: str, shapes: dict[str, str]
) -> None:
    front = f"---\n{role}\n---\n\n"
    (agents / "alone.md").write_text(front)
    for number, shape in enumerate(shapes.values()):
        (agents / f"{number}.md").write_text(front + unmarked(shape))
    assert run_command(["agent-file", "sync", "agents"]) == 0
    section = (agents / "alone.md").read_text().removeprefix(front)
    assert section.startswith(
        "# PROMPT EMISSION PROTOCOL" if "orchestrator" in role else "# SUGGESTED PROMPTS"
    )
    for number, (name, shape) in enumerate(shapes.items()):
        assert (agents / f"{number}.md").read_text() == front + shape.replace(HERE, section), name


@pytest.mark.demand("N10.a", "N10.b", "N10.d", "N10.f", "N10.g")
def test_what_is_installed_are_the_named_agents_with_their_sections_in_place(agents: Path) -> None:
    folder = agents / "shipped"
    assert run_command(["agent-file", "install", str(folder)]) == 0
    texts = {path.stem: path.read_text() for path in folder.iterdir()}
    subs = [name for names in SUB_AGENTS.values() for name in names]
    assert texts.keys() == {"00-sdlc-orchestrator", *CLOSING_LINES, *SUB_AGENTS, *subs}
    for name, beginning in CLOSING_LINES.items():
        titles = re.findall(r"^# (.+)$", texts[name], re.MULTILINE)
        assert titles.index("SUGGESTED PROMPTS") == titles.index("SELF-VALIDATION") + 1
        last = texts[name].rstrip("\n").rpartition("\n\n")[2]
        assert last.startswith(beginning) if beginning else last.endswith("```")
    protocol = (Path(__file__).parents[1] / "fixtures/interface/protocol.md").read_text()
    before, after = (
        "# CONSTITUTIONAL GOVERNANCE",
        f"\n{protocol}\n# PROGRESS TRACKING (TASK LIST)\n",
    )
    between = texts["00-sdlc-orchestrator"].partition(before)[2].partition(after)
    assert between[1]
    assert not re.search("^# ", between[0], re.MULTILINE)
