"""The examples of the page about one's own program, run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.dispatch_project import FILES, make_project, package

PAGE = Path(__file__).parents[2] / "docs/how-to/drive-your-own-program.md"


def example(language: str) -> str:
    found = re.findall(rf"```{language}\n(#!.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert len(found) == 1
    return str(found[0])


@pytest.mark.demand("D3.h")
@pytest.mark.parametrize(("language", "name"), [("bash", "agent.sh"), ("python", "agent.py")])
def test_the_program_of_the_page_carries_a_package_to_done(
    tmp_path: Path, language: str, name: str
) -> None:
    one = make_project(
        tmp_path,
        {"WP01": package(files=("greeting.py",))},
        files={**FILES, f"tools/{name}": example(language)},
        harness=f'harness = "command"\ncommand = ["tools/{name}"]',
    )
    (one.root / "tools" / name).chmod(0o755)
    done = one.command("dispatch", "WP01")
    assert done.code == 0, done.stderr
    assert "greeting.py" in one.files_of("feat/001-user-login")
