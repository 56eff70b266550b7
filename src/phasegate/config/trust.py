"""Find the parts of a repository that need trust, and which of them the user has accepted.

A part whose content changed has another line in the record, so it has to be accepted again.
"""

from __future__ import annotations

import os

from phasegate.core.text.visible import escape_unprintable
from phasegate.core.trust import (
    CREDENTIALS_LINE,
    Trust,
    TrustPart,
    group_settings,
    hash_content,
    hash_parts,
)
from phasegate.errors import ConfigError, EnvironmentUnavailable
from phasegate.files import read_regular_file
from phasegate.storage.trust_record import ANY_CONTENT, read_accepted_lines, write_accepted_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    Key = tuple[str, ...]

# 1 accepts every repository, a digest only this content: for CI.
TRUST_VARIABLE = "PHASEGATE_TRUST"
INCLUDE_FILE = ".worktreeinclude"
_DEFAULT_PATHS = {"templates": "templates/system", "project_file": ".agentd/project.md"}
_SEED_PROJECT_FILE = "agentd/project.md"
# At least the size of the largest template that is used
_MAX_FILE_BYTES = 1024 * 1024
_MAX_FILES = 1_000


def find_trust(
    root: Path, settings: Iterable[tuple[Key, object]], environ: Mapping[str, str]
) -> Trust:
    """Return the settings of a repository that need trust, and those that the user has accepted."""
    entries = [*settings]
    tables = (_add_programs(str(root), part) for part in group_settings(entries))
    parts = (*tables, *_find_file_parts(str(root), dict(entries)))
    wanted = environ.get(TRUST_VARIABLE, "")
    if wanted == "1":
        return Trust(parts, accepts_all=True)

    if wanted:
        digest = hash_parts(parts)
        if wanted != digest:
            raise ConfigError(
                f"{TRUST_VARIABLE} does not match the digest of what this repository asks for:"
                f" {digest}",
                "review it with `phasegate trust --show`, then set the new digest",
            )
        return Trust(parts, _list_lines(parts))

    return Trust(parts, read_accepted_lines(str(root), environ))


def _add_programs(root: str, part: TrustPart) -> TrustPart:
    """Return a part whose digest includes the files that the notification command names.

    They run as the user, without a sandbox: a pull that changes one must not change what runs.
    """
    command = dict(part.settings).get(("notify", "command"))
    words = command if isinstance(command, list) else ()
    files = (
        read_regular_file(os.path.realpath(os.path.join(root, str(word))), _MAX_FILE_BYTES)  # noqa: PTH118
        for word in words
    )
    contents = [hash_content(content) for content in files if content is not None]
    if not contents:
        return part
    return TrustPart(part.name, hash_content(f"{part.digest} {contents}".encode()), part.settings)


def accept_parts(root: Path, parts: Iterable[TrustPart], environ: Mapping[str, str]) -> None:
    """Record that the user looked at these parts and accepts them, and lends credentials."""
    _write_lines(root, _list_lines(parts), environ)


def _write_lines(root: Path, lines: Iterable[str], environ: Mapping[str, str]) -> None:
    try:
        write_accepted_lines(str(root), lines, environ)
    except OSError as error:
        raise EnvironmentUnavailable(
            f"the answer cannot be recorded: {error}",
            "make .git and the state directory ($XDG_STATE_HOME, ~/.local/state) writable",
        ) from error


def _list_lines(parts: Iterable[TrustPart]) -> frozenset[str]:
    """Return the lines of the record with which exactly these parts are accepted."""
    return frozenset((CREDENTIALS_LINE, *(part.line for part in parts)))


def forget_trust(root: Path, environ: Mapping[str, str]) -> None:
    """Withdraw the acceptance for a repository."""
    _write_lines(root, (), environ)


def _find_file_parts(root: str, settings: Mapping[Key, object]) -> Iterator[TrustPart]:
    """Yield the files that steer agents: templates, the project's description, included files."""
    paths = {
        name: {default, _read_path(settings.get(("paths", name)), default)}
        for name, default in _DEFAULT_PATHS.items()
    }
    for folder in sorted(paths["templates"]):
        if os.path.lexists(f"{root}/{folder}"):
            digest, count = _hash_folder(f"{root}/{folder}")
            purpose = f"instructions for agents, files: {count}"
            if not digest:
                purpose += f"; more than {_MAX_FILES} cannot be accepted"
            yield TrustPart(folder, digest, purpose=purpose)

    for path in sorted((*paths["project_file"], _SEED_PROJECT_FILE)):
        if os.path.lexists(f"{root}/{path}"):
            # Its text is edited often and is part of prompts only: it is accepted once.
            yield TrustPart(path, ANY_CONTENT, purpose="a description of the project for agents")

    if os.path.lexists(f"{root}/{INCLUDE_FILE}"):
        content = read_regular_file(f"{root}/{INCLUDE_FILE}", _MAX_FILE_BYTES) or b""
        patterns = ", ".join(content.decode("utf-8", "replace").split("\n")).strip(", ")
        purpose = f"ignored files that jobs get: {patterns}"
        yield TrustPart(INCLUDE_FILE, hash_content(content), purpose=purpose)


def _read_path(value: object, default: str) -> str:
    """Return a configured path; the default if it is not one below the root."""
    if isinstance(value, str) and ".." not in value.split("/"):
        return value.rstrip("/") or default
    return default


def _hash_folder(folder: str) -> tuple[str, int]:
    """Return a digest of the files in a folder, without subfolders, and their number.

    The digest of too many files is empty: they take too long to read for every command.
    """
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - texts
    except OSError:
        return hash_content(b""), 0
    if len(names) > _MAX_FILES:
        return "", len(names)

    # A line feed in a name must not make it look like two files
    files = [
        TrustPart(
            name, hash_content(read_regular_file(f"{folder}/{name}", _MAX_FILE_BYTES) or b"")
        ).line
        for name in names
    ]
    return hash_content("\n".join(files).encode()), len(names)


def describe_untrusted(untrusted: Iterable[TrustPart]) -> str:
    """Return one line that names the unused settings, and the command that accepts them."""
    names = escape_unprintable(", ".join(_name_part(part) for part in untrusted))
    return f"not used until you accept it with `phasegate trust`: {names}"


def _name_part(part: TrustPart) -> str:
    if part.settings:
        keys = ", ".join(key[-1] for key, _ in part.settings)
        return f"[{part.name}] {keys}"
    return part.name
