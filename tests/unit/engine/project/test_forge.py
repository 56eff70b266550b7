"""Which token goes to which forge."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.config.settings import Config, ForgeKind, ForgeSettings
from phasegate.core.credentials import FORGE_VARIABLES
from phasegate.engine.project.forge import open_forge
from phasegate.engine.project.project import Project
from phasegate.errors import ConfigError, EnvironmentUnavailable, PhasegateError
from phasegate.forge.registry import FORGES
from support.git_project import git
from support.plain_project import make_plain_project


def project_at(folder: Path, url: str, settings: ForgeSettings = ForgeSettings()) -> Project:  # noqa: B008 - frozen
    project = make_plain_project(folder, Config(forge=settings))
    project.root.mkdir(parents=True)
    git(project.root, "init", "-q")
    if url:
        git(project.root, "remote", "add", "origin", url)
    return project


@pytest.fixture(autouse=True)
def no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """No token of the person who runs the tests."""
    for name in ("GH_TOKEN", "GITHUB_TOKEN", "GITLAB_TOKEN", "CODEBERG_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def test_the_usual_variable_is_used_for_the_forge_it_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "  t1\n")
    remote = open_forge(project_at(tmp_path, "git@github.com:o/r.git")).remote
    assert (remote.token, remote.user) == ("t1", "x-access-token")


def test_the_token_of_one_forge_is_never_sent_to_another_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "t1")
    stolen = (
        ForgeSettings(
            kind=ForgeKind("github"), token_env="GITHUB_TOKEN", url="https://evil.example"
        ),
        ForgeSettings(kind=ForgeKind("gitlab"), token_env="GITHUB_TOKEN", url="https://gitlab.com"),
    )
    for number, settings in enumerate(stolen):
        project = project_at(tmp_path / str(number), "https://github.com/o/r", settings)
        with pytest.raises(ConfigError, match="refusing to send GITHUB_TOKEN to"):
            open_forge(project)
    unnamed = ForgeSettings(kind=ForgeKind("gitea"), url="https://evil.example")
    with pytest.raises(EnvironmentUnavailable, match="there is no token"):
        open_forge(project_at(tmp_path / "unnamed", "https://evil.example/o/r", unnamed))


def test_an_own_variable_may_go_to_an_own_host_and_must_be_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ForgeSettings(kind=ForgeKind("gitea"), token_env="OUR_FORGE")
    project = project_at(tmp_path, "https://git.our.example/o/r", settings)
    with pytest.raises(EnvironmentUnavailable, match="OUR_FORGE is not set"):
        open_forge(project)
    monkeypatch.setenv("OUR_FORGE", "t2")
    assert open_forge(project).remote.token == "t2"
    for wrong in ("two words", "t\x07", "t\xe9"):
        monkeypatch.setenv("OUR_FORGE", wrong)
        with pytest.raises(EnvironmentUnavailable, match="no valid token"):
            open_forge(project)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "there is no remote 'origin'"),
        ("https://git.our.example/o/r", "is unknown"),
        ("/srv/r.git", "is unknown"),
    ],
)
def test_an_unknown_forge_is_refused(tmp_path: Path, url: str, message: str) -> None:
    with pytest.raises(PhasegateError, match=message):
        open_forge(project_at(tmp_path, url))


@pytest.mark.parametrize(
    ("url", "remote", "message"),
    [
        ("https://github.com", "https://evil.example/o/r", "not sent to the other"),
        ("", "http://github.com/o/r", "without encryption"),
        ("https://github.com", "http://github.com/o/r", "not sent to the other"),
        ("https://github.com", "https://github.com:8443/o/r", "not sent to the other"),
        ("https://GitHub.com", "https://github.com:99999/o/r", "is not a valid address"),
        ("https://github.com", "https://github.com@[::1]/o/r", "not sent to the other"),
        ("https://github.com", "https://GITHUB.COM.evil.example/o/r", "not sent to the other"),
        ("https://github.com:8443", "https://github.com:8443/o/r", "there is no token"),
        (
            "https://github.com@evil.example",
            "https://github.com/o/r",
            "there is no token|user name",
        ),
    ],
)
def test_a_token_goes_to_one_host_encrypted_the_same_for_api_and_remote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, remote: str, message: str
) -> None:
    """The API was checked, and git sent the token to the remote: once that was another host."""
    monkeypatch.setenv("GH_TOKEN", "t1")
    settings = ForgeSettings(kind=ForgeKind("github"), url=url, repository="o/r")
    with pytest.raises(PhasegateError, match=message):
        open_forge(project_at(tmp_path / "wrong", remote, settings))
    honest = ForgeSettings(kind=ForgeKind("github"), url="https://github.com", repository="o/r")
    addresses = ("https://github.com/o/r", "https://GitHub.com:443/o/r", "git@github.com:o/r")
    for number, address in enumerate(addresses):
        assert open_forge(project_at(tmp_path / str(number), address, honest)).remote.token == "t1"


def test_the_key_of_an_agent_is_never_the_token_of_a_forge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "t1")
    settings = ForgeSettings(kind=ForgeKind("gitea"), token_env="ANTHROPIC_API_KEY")
    with pytest.raises(ConfigError, match="is an agent's key"):
        open_forge(project_at(tmp_path, "https://git.our.example/o/r", settings))


def test_the_tokens_of_all_forges_are_known_to_the_module_that_decides() -> None:
    named = {name for row in FORGES.values() for name in row.token_variables}
    assert named == FORGE_VARIABLES
