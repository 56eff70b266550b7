"""Build the environment of a sandboxed program from an allow-list."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from phasegate.errors import ConfigError

JOB_TAG_VARIABLE = "PHASEGATE_JOB"
_INHERITED_VARIABLES = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "JAVA_HOME", "GOROOT")
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"

# Tool chains that are installed below the home folder and locate themselves through HOME. A job has
# its own HOME, so these variables point them to the real installation.
TOOLCHAIN_FOLDERS = {
    "RUSTUP_HOME": ".rustup",
    "PYENV_ROOT": ".pyenv",
    "RBENV_ROOT": ".rbenv",
    "NVM_DIR": ".nvm",
    "VOLTA_HOME": ".volta",
    "ASDF_DATA_DIR": ".asdf",
}


def build_environment(
    allowed_names: Iterable[str] = (),
    values: Mapping[str, str] | None = None,
    *,
    source: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Build a job's environment: a short fixed list, the allowed names and the given values.

    Nothing is read from any file, so no file of the repository can add to it.
    """
    source = os.environ if source is None else source
    names = [*_INHERITED_VARIABLES, *TOOLCHAIN_FOLDERS, *allowed_names]
    inherited = {name: source[name] for name in names if name in source}
    fixed = {"PATH": filter_search_path(source.get("PATH", "")), "TERM": "dumb"}

    return _check_variables(
        {"LANG": "C.UTF-8", **_find_toolchains(source), **inherited, **fixed, **(values or {})}
    )


def filter_search_path(path: str) -> str:
    """Return the absolute entries of PATH.

    An empty or relative entry would find programs of the repository.
    """
    entries = [entry for entry in path.split(":") if entry.startswith("/")]
    return ":".join(dict.fromkeys(entries)) or _DEFAULT_PATH


def _find_toolchains(source: Mapping[str, str]) -> dict[str, str]:
    home = source.get("HOME", "")
    if not home.startswith("/"):
        return {}

    folders = {name: f"{home}/{folder}" for name, folder in TOOLCHAIN_FOLDERS.items()}
    return {name: folder for name, folder in folders.items() if Path(folder).is_dir()}


def _check_variables(values: dict[str, str]) -> dict[str, str]:
    for name, value in values.items():
        if not name or "=" in name or "\0" in name:
            raise ConfigError(
                f"{name!r} is not a valid name of an environment variable",
                "correct it in `env` of the agent",
            )
        if "\0" in value:
            raise ConfigError(
                f"the value of {name} contains a NUL character", "set the variable to plain text"
            )

    return values
