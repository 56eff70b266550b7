"""Addresses that two programs read in two ways get no secret, and a login in an address is not shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasegate.core.credentials import find_forge_token_refusal
from phasegate.engine.project.forge import find_forge_address
from phasegate.engine.project.project import open_project
from phasegate.errors import ConfigError, TemporarilyUnavailable
from phasegate.git import Login, read_login
from phasegate.workspace.repository.remote import Remote, get_remote_branch
from support.git_project import git, make_repository

HOSTS = {"GH_TOKEN": ("github.com",)}
PASSWORD = "canary-password-77"


@pytest.mark.parametrize("variable", ["GH_TOKEN", ""])
@pytest.mark.parametrize(
    ("api", "remote"),
    [
        ("https://github.com:abc", "https://github.com/o/r"),
        ("https://[::1", "https://github.com/o/r"),
        ("https://github.com", "https://[github.com/o/r"),
        ("https://evil.invalid/\nhost=github.com", "https://evil.invalid/o/r"),
        ("https://evil.invalid", "https://evil.invalid/\nhost=github.com"),
        ("https://github.com", "https://github.com@evil.invalid/o/r"),
        ("https://github.com", "https://github.com\\@evil.invalid/o/r"),
        ("https://github.com", "HTTPS://evil.invalid/github.com"),
        ("https://github.com", "https://github.com%2eevil.invalid/o/r"),
        ("https://github.com", "https://g\u0131thub.com/o/r"),
        ("https://github.com", "https://github.com:99999/o/r"),
        ("https://github.com", "http://github.com/o/r"),
    ],
)
def test_an_address_that_can_be_read_in_two_ways_gets_no_token(
    variable: str, api: str, remote: str
) -> None:
    assert find_forge_token_refusal(variable, api, remote, HOSTS) is not None
    honest = ("https://github.com", "https://github.com/o/r")
    assert find_forge_token_refusal(variable, *honest, HOSTS) is None, "the control"


def test_a_line_feed_in_an_address_asks_for_no_other_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's helper has a password for one host; the address of another one names it."""
    settings = tmp_path / "gitconfig"
    helper = f"!f() {{ grep -q host=known.invalid && echo password={PASSWORD}; }}; f"
    git(tmp_path, "config", "--file", str(settings), "credential.helper", helper)
    git(tmp_path, "config", "--file", str(settings), "credential.username", "me")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    assert read_login("https://evil.invalid/\nhost=known.invalid") == Login()
    assert read_login("https://evil.invalid/o/r").password == ""
    assert read_login("https://known.invalid/o/r") == Login("me", PASSWORD), "the control"


def test_the_login_in_the_address_of_a_remote_is_not_shown(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "project").root
    git(root, "remote", "add", "origin", f"https://me:{PASSWORD}@code.invalid/o/r.git")
    with pytest.raises(ConfigError, match=r"code\.invalid/o/r\.git") as refused:
        find_forge_address(open_project(root))
    assert PASSWORD not in str(refused.value)
    remote = Remote(f"https://me:{PASSWORD}@127.0.0.1:9/o/r.git")
    repository = open_project(root).repository
    with pytest.raises(TemporarilyUnavailable, match=r"127\.0\.0\.1:9/o/r\.git") as failed:
        get_remote_branch(repository, remote, "main")
    assert PASSWORD not in str(failed.value)
