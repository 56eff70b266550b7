"""An http remote that asks for a login gets the one of the user's credential helper."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from phasegate.errors import EnvironmentUnavailable
from phasegate.workspace.repository.remote import Remote, get_remote_branch, with_user_credential
from support.git_project import git, make_repository

LOGIN = base64.b64encode(b"robot:s3cret").decode()


class Guarded(SimpleHTTPRequestHandler):
    """Serves files to who has the login."""

    def do_GET(self) -> None:
        if self.headers.get("Authorization") == f"Basic {LOGIN}":
            super().do_GET()
            return
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="git"')
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def guarded_server(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Guarded, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_a_login_of_the_credential_helper_opens_an_http_remote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = make_repository(tmp_path / "project")
    head = git(repository.root, "rev-parse", "HEAD").strip()
    git(tmp_path, "clone", "-q", "--bare", str(repository.root), "remote.git")
    git(tmp_path / "remote.git", "update-server-info")
    helper = "!f() { echo username=robot; echo password=s3cret; }; f"
    config = tmp_path / "gitconfig"
    git(tmp_path, "config", "--file", str(config), "credential.helper", helper)
    with guarded_server(tmp_path) as url:
        remote = Remote(f"{url}/remote.git")
        with pytest.raises(EnvironmentUnavailable):
            get_remote_branch(repository, remote, "main")
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
        known = with_user_credential(remote)
        assert (known.user, known.token) == ("robot", "s3cret")
        assert get_remote_branch(repository, known, "main") == head
    local = Remote(str(tmp_path / "remote.git"))
    assert with_user_credential(local) == local, "control: only http remotes are asked for"
