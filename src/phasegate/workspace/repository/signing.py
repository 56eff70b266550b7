"""Sign a text with the user's key, if git is configured for signing.

Only `user.signingkey`, `gpg.format` and the programs that git would use are read. No other key is
searched for.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from phasegate.git import build_signing_environment, run_git_as_user
from phasegate.sandbox.run_program import find_program, run_program
from phasegate.workspace.repository.merge import SigningFailed
from phasegate.workspace.repository.repository import Repository, temporary_folder

SSH = "ssh"
OPENPGP = "openpgp"
_SIGNING_TIMEOUT_S = 120.0
_LITERAL_KEYS = ("key::", "ssh-", "ecdsa-", "sk-")


class SigningKey(NamedTuple):
    """The key that git would sign with."""

    # ssh or openpgp
    format: str
    # A key id, the path of a key file, or an ssh public key
    name: str
    program: str
    # Fingerprint of an ssh key; otherwise the name
    fingerprint: str


def find_signing_key(repository: Repository) -> SigningKey | SigningFailed | None:
    """Return the configured key, or None if git is not configured for signing."""
    name = _read_setting(repository, "user.signingkey", "--type=path")
    if not name:
        return None

    format_ = _read_setting(repository, "gpg.format") or OPENPGP
    if format_ == OPENPGP:
        program = _read_setting(repository, "gpg.program") or "gpg"
        return SigningKey(OPENPGP, name, program, name)
    if format_ != SSH:
        return SigningFailed(f"gpg.format {format_} is not supported, only ssh and openpgp")

    program = _read_setting(repository, "gpg.ssh.program") or "ssh-keygen"
    key = SigningKey(SSH, name, program, "")
    with temporary_folder(repository) as folder:
        listed = _run(folder, "ssh-keygen", "-l", "-f", _find_key_file(key, folder))

    if isinstance(listed, SigningFailed):
        return listed
    return key._replace(fingerprint=listed.decode(errors="replace").split()[1])


def sign_text(
    repository: Repository, key: SigningKey, text: bytes, namespace: str
) -> bytes | SigningFailed:
    """Return an armored signature of a text. An ssh signature is bound to the namespace."""
    with temporary_folder(repository) as folder:
        if key.format == OPENPGP:
            return _run(folder, key.program, "-bsau", key.name, stdin=text)

        options = ["-Y", "sign", "-n", namespace, "-f", _find_key_file(key, folder)]
        if key.name.startswith(_LITERAL_KEYS):
            # The private key is in the agent
            options.append("-U")
        return _run(folder, key.program, *options, stdin=text)


def _find_key_file(key: SigningKey, folder: Path) -> str:
    """Return the path of an ssh key. A public key in the settings is written to a file."""
    if not key.name.startswith(_LITERAL_KEYS):
        return key.name

    path = folder / "key.pub"
    path.write_text(key.name.removeprefix("key::") + "\n", encoding="utf-8")
    return str(path)


def _read_setting(repository: Repository, name: str, *options: str) -> str:
    found = run_git_as_user(repository.root, "config", *options, "--get", name)
    return os.fsdecode(found.stdout).strip()


def _run(folder: Path, program: str, *arguments: str, stdin: bytes = b"") -> bytes | SigningFailed:
    """Run a signing program, and return its output or why it failed."""
    environment = build_signing_environment()
    found = find_program(program, path=environment["PATH"])
    if found is None:
        return SigningFailed(f"{program} is not installed")

    result = run_program(
        [found, *arguments],
        cwd=folder,
        env=environment,
        stdin=stdin,
        timeout_s=_SIGNING_TIMEOUT_S,
    )
    if result.ok and result.stdout:
        return result.stdout
    return SigningFailed(result.stderr.decode(errors="replace").strip()[:500] or "no reason given")
