"""Files that a prompt names behind an `@` are not read in by the programs that would do so."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.agents.port import AgentConfig, get_harness
from support.tasks import make_task

NAMES = 'see @src, @src/a.py. @src/a.py#L3-9 @../outside @/etc/passwd @"a b" @a\\ b @agent-x'
PLAIN = "@pytest.fixture a@b.c @@ -0,0 +1 @@ @ @types/node @none.py (@param) é"


def stdin(kind: str, folder: Path, text: str) -> str:
    (folder / "repo/src").mkdir(parents=True)
    (folder / "repo/src/a.py").touch()
    (folder / "outside").touch()
    task = make_task(folder / "repo", AgentConfig("tested"), kind=kind)
    task.prompt_xml.write_text(text, encoding="utf-8")
    given = get_harness(kind).launch(task).stdin
    return (given if isinstance(given, bytes) else given.read_bytes()).decode()


@pytest.mark.demand("P5.a")
@pytest.mark.parametrize("kind", ["claude_code", "gemini"])
def test_only_the_at_before_what_would_be_read_is_written_as_a_reference(
    kind: str, tmp_path: Path
) -> None:
    assert stdin(kind, tmp_path, f"{NAMES}\n{PLAIN}") == f"{NAMES.replace('@', '&#64;')}\n{PLAIN}"


@pytest.mark.demand("P5.a")
def test_a_program_that_puts_blanks_before_each_gets_none(tmp_path: Path) -> None:
    assert stdin("qwen", tmp_path, f"{NAMES}\n{PLAIN}") == f"{NAMES}\n{PLAIN}".replace("@", "&#64;")


@pytest.mark.parametrize("kind", ["codex", "opencode"])
def test_programs_that_read_nothing_get_the_prompt_as_it_is(kind: str, tmp_path: Path) -> None:
    assert stdin(kind, tmp_path, NAMES) == NAMES
