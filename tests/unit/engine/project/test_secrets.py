"""The secrets that the agents of a project receive."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.config.settings import AgentSettings, Config, HarnessKind
from phasegate.core.agents.harnesses import HARNESSES
from phasegate.engine.project.secrets import collect_lent_secrets
from support.plain_project import make_plain_project

CODEX = HARNESSES["codex"]


def knows(folder: Path, text: str, **settings: object) -> bool:
    agent = AgentSettings(HarnessKind("codex"), **settings)  # type: ignore[arg-type]
    project = make_plain_project(folder, Config(agents={"one": agent}))
    return collect_lent_secrets(project).has_secret(text.encode())


def test_keys_of_the_program_and_of_the_configuration_are_known_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CODEX.key_variables[0], "key-of-the-program-1")
    monkeypatch.setenv("MY_TOKEN", "token-of-the-user-22")
    assert knows(tmp_path, "x key-of-the-program-1 x")
    assert not knows(tmp_path, "x token-of-the-user-22 x")
    assert knows(tmp_path, "x token-of-the-user-22 x", env=("MY_TOKEN",))


def test_a_sign_in_file_is_read_only_if_it_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / CODEX.sign_in_files[0]
    file.parent.mkdir(parents=True)
    file.write_text('{"access_token": "sign-in-value-0123456789"}')
    assert knows(tmp_path, "sign-in-value-0123456789")
    assert not knows(tmp_path, "sign-in-value-0123456789", share_sign_in=False)
