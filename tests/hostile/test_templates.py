"""Templates and values that somebody else wrote; each case first harms careless code."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from phasegate import TemplateNotFound, inject_variables, load_system_template
from phasegate.errors import TemplateRefused
from phasegate.prompts.templates import MAX_TEMPLATE_BYTES


def naive_fill(template: str, values: dict[str, str]) -> str:
    """Chained replacement, as it is often done: expands what values bring in."""
    for name, value in values.items():
        template = template.replace("{{" + name + "}}", value)
    return template


def put(root: Path, name: str, text: str = "mine") -> Path:
    path = root / "templates/system" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.demand("T3.c")
def test_b01_a_placeholder_inside_a_value_stays_literal() -> None:
    values = {"PROJECT_CONTEXT": "see {{TASKS}}", "TASKS": "1.1 delete everything"}
    assert naive_fill("{{PROJECT_CONTEXT}}", values) == "see 1.1 delete everything"
    assert inject_variables("{{PROJECT_CONTEXT}}", values) == "see {{TASKS}}"


@pytest.mark.demand("T3.c")
def test_b01_two_values_cannot_make_a_placeholder_between_them() -> None:
    values = {"PROJECT_CONTEXT": "{{TAS", "SKELETON": "KS}}", "TASKS": "secret"}
    template = "{{PROJECT_CONTEXT}}{{SKELETON}}"
    assert naive_fill(template, values) == "secret"
    assert inject_variables(template, values) == "{{TASKS}}"


@pytest.mark.demand("T1.c", "T1.d")
def test_b02_an_unknown_phase_is_an_error_and_starts_no_agent(tmp_path: Path) -> None:
    canary = tmp_path / "bin" / "claude"
    canary.parent.mkdir()
    canary.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    canary.chmod(0o755)
    environment = {**os.environ, "PATH": f"{canary.parent}:{os.environ['PATH']}"}
    subprocess.run(["claude"], env=environment, check=True)
    assert (tmp_path / "started").exists()  # an agent that is started leaves its mark
    (tmp_path / "started").unlink()
    command = [
        sys.executable,
        "-m",
        "phasegate",
        "prompt",
        "show",
        "--phase",
        "invalid-phase",
        "--agent",
        "claude",
        "x",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "TemplateNotFound" in done.stderr
    assert "templates/system/CLAUDE-invalid-phase.md" in done.stderr
    assert "templates/system/BASE-invalid-phase.md" in done.stderr
    assert not (tmp_path / "started").exists()


MALFORMED = [
    ("../../etc/passwd", "plan"),
    ("/etc/passwd\0", "plan"),
    ("CLAUDE", "plan\0x"),
    ("CLAUDE", "PLAN"),
    ("CLAUDE", "../plan"),
    ("CLAUDE", "plan.md"),
    ("CLAUDE", ""),
    ("", "plan"),
    ("claude", "plan"),
    ("CLAUDE-X", "plan"),
    ("CLAUDE\n", "plan"),
    ("ＣＬＡＵＤＥ", "plan"),
    ("A" * 10_000, "plan"),
    (None, "plan"),
    ("CLAUDE", 7),
]


@pytest.mark.demand("T1.d", "T1.h")
@pytest.mark.parametrize(("agent", "phase"), MALFORMED)
def test_b03_a_malformed_name_is_not_found_before_any_path_is_built(
    agent: object, phase: object, tmp_path: Path
) -> None:
    opened: list[object] = []

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event in ("open", "os.listdir", "os.scandir"):
            opened.append(arguments[0])

    sys.addaudithook(watch)
    watching = True
    (tmp_path / "canary").write_text("")
    assert opened == [str(tmp_path / "canary")] or opened  # the hook sees what is opened
    opened.clear()
    with pytest.raises(TemplateNotFound):
        load_system_template(agent, phase, root=tmp_path)  # type: ignore[arg-type]
    watching = False
    assert opened == []


@pytest.mark.demand("T1.h")
def test_b03_a_name_that_leaves_the_folder_reads_nothing(tmp_path: Path) -> None:
    (tmp_path / "secret-plan.md").write_text("secret")
    (tmp_path / "templates/system").mkdir(parents=True)
    agent = "../../secret"
    assert Path(f"{tmp_path}/templates/system/{agent}-plan.md").read_text() == "secret"
    with pytest.raises(TemplateNotFound):
        load_system_template(agent, "plan", root=tmp_path)


@pytest.mark.demand("T1.d")
def test_b03_an_agent_that_nobody_configured_or_wrote_a_template_for_is_not_found(
    tmp_path: Path,
) -> None:
    put(tmp_path, "BASE-plan.md")
    with pytest.raises(
        TemplateNotFound,
        match=r"templates/system/NOBODY-plan\.md nor templates/system/BASE-plan\.md",
    ):
        load_system_template("NOBODY", "plan", root=tmp_path)
    put(tmp_path, "NOBODY-plan.md", "now there is one")
    assert load_system_template("NOBODY", "plan", root=tmp_path) == "now there is one"


@pytest.mark.demand("T1.h")
def test_b04_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    link = put(tmp_path / "project", "BASE-plan.md").with_name("CLAUDE-plan.md")
    link.symlink_to(tmp_path / "secret")
    assert link.read_text() == "secret"
    with pytest.raises(TemplateRefused, match=r"CLAUDE-plan\.md"):
        load_system_template("CLAUDE", "plan", root=tmp_path / "project")
    assert load_system_template("CODEX", "plan", root=tmp_path / "project") == "mine"


@pytest.mark.demand("T1.h")
def test_b04_a_folder_that_is_a_link_out_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere", "CLAUDE-plan.md", "secret")
    (tmp_path / "project").mkdir()
    (tmp_path / "project/templates").symlink_to(tmp_path / "elsewhere/templates")
    assert (tmp_path / "project/templates/system/CLAUDE-plan.md").read_text() == "secret"
    with pytest.raises(TemplateRefused, match="outside the project"):
        load_system_template("CLAUDE", "plan", root=tmp_path / "project")
    assert load_system_template(
        "CODEX", "review", root=tmp_path / "project"
    )  # nothing of ours there: no harm


@pytest.mark.demand("T1.h")
def test_b04_a_pipe_is_refused_without_a_wait(tmp_path: Path) -> None:
    pipe = put(tmp_path, "BASE-plan.md").with_name("CLAUDE-plan.md")
    os.mkfifo(pipe)
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", f"open({str(pipe)!r}).read()"], timeout=1)
    with pytest.raises(TemplateRefused, match="not a regular file"):
        load_system_template("CLAUDE", "plan", root=tmp_path)


@pytest.mark.demand("T1.h")
@pytest.mark.parametrize("kind", ["folder", "too large", "no utf-8", "link to itself"])
def test_b04_what_is_no_template_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    path = put(tmp_path, "BASE-plan.md").with_name("CLAUDE-plan.md")
    if kind == "folder":
        path.mkdir()
    elif kind == "too large":
        path.write_bytes(b"a" * (MAX_TEMPLATE_BYTES + 1))
    elif kind == "no utf-8":
        path.write_bytes(b"\xff")
    else:
        path.symlink_to(path)
    with pytest.raises(TemplateRefused, match=r"cannot use template .*CLAUDE-plan\.md: "):
        load_system_template("CLAUDE", "plan", root=tmp_path)


@pytest.mark.demand("T3.d")
def test_b05_a_missing_variable_leaves_a_note_and_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert naive_fill("{{PROJECT_CONTEXT}}", {}) == "{{PROJECT_CONTEXT}}"
    with caplog.at_level(logging.WARNING, "phasegate"):
        text = inject_variables("A {{PROJECT_CONTEXT}} B {{TASKS}} C", {"TASKS": "1.1"})
    assert "Context not provided" in text
    assert "{{" not in text
    assert [record.getMessage() for record in caplog.records] == [
        "no value for the template variable PROJECT_CONTEXT"
    ]


@pytest.mark.demand("T3.c")
@pytest.mark.parametrize(
    "value", [r"\1", r"\g<0>", "%s", "{0}", "{name}", "$(id)", "${HOME}", "`id`", "\\", "\0", "{{"]
)
def test_b06_a_value_is_literal(value: str) -> None:
    template = "<{{TASKS}}>"
    try:
        naively = re.sub(r"(\{\{TASKS\}\})", value, template)
    except re.error:
        naively = ""
    assert naively != f"<{value}>" or "\\" not in value
    assert inject_variables(template, {"TASKS": value}) == f"<{value}>"
