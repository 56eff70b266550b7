"""Find the user's package registry settings: variables and files that setups may use.

A setup of a tree that no agent wrote gets all of them. A setup of an agent's tree gets them without
credentials. Every other command gets nothing: it has no network, and an agent's code could read
the settings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from configparser import ConfigParser, Error
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from phasegate.errors import PhasegateError
from phasegate.files.text_file import read_text_file

_EXACT_NAMES = frozenset(
    (
        *(
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "REQUESTS_CA_BUNDLE",
            "CURL_CA_BUNDLE",
            "NODE_EXTRA_CA_CERTS",
        ),
        *(
            "GIT_SSL_CAINFO",
            "HTTPLIB2_CA_CERTS",
            "GOPROXY",
            "GOPRIVATE",
            "GONOPROXY",
            "GONOSUMDB",
            "GONOSUMCHECK",
        ),
        *(
            "GOSUMDB",
            "GOINSECURE",
            "NODE_AUTH_TOKEN",
            "NPM_TOKEN",
            "COREPACK_NPM_REGISTRY",
            "COREPACK_INTEGRITY_KEYS",
        ),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "PIP_CONFIG_FILE"),
        *("NPM_CONFIG_USERCONFIG", "NPM_CONFIG_GLOBALCONFIG"),
    )
)
_NAME_PREFIXES = (
    *(
        "PIP_",
        "UV_",
        "NPM_CONFIG_",
        "YARN_",
        "PNPM_CONFIG_",
        "BUN_CONFIG_",
        "POETRY_",
        "PDM_",
        "CARGO_",
        "NUGET_",
    ),
)
# Selects the variables that say where packages come from; the others only control
# behaviour.
_RELEVANT_NAME = re.compile(
    r"INDEX|REGISTR|REPOSITOR|PROXY|CERT|(?:^|_)CA(?:_|$)|CAFILE|SSL|TLS|TRUSTED|INSECURE|FIND_LINKS|TIMEOUT|RETRIES"
    r"|HTTP|AUTH|TOKEN|PASSW|USERNAME|KEYRING|OFFLINE|SOURCE|MIRROR|DISABLE_PIP_VERSION_CHECK"
)
_CREDENTIAL_NAME = re.compile(
    r"AUTH|TOKEN|PASSW|USERNAME|KEYRING|SECRET|CREDENTIAL|HTTP_BASIC|CLIENT_CERT|_KEY(?:FILE)?$",
    re.I,
)
_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s,;]+", re.I)
_PIP_OPTIONS = (
    "index-url",
    "extra-index-url",
    "find-links",
    "cert",
    "trusted-host",
    "proxy",
    "timeout",
    "no-index",
)
_NPM_OPTIONS = re.compile(
    r"(registry|@[\w.-]+:registry|cafile|proxy|https-proxy|noproxy|strict-ssl|nodedir)\s*=\s*(.+)"
)
_FILE_VARIABLES = (
    "PIP_CONFIG_FILE",
    "NPM_CONFIG_USERCONFIG",
    "NPM_CONFIG_GLOBALCONFIG",
    "UV_CONFIG_FILE",
    "GOENV",
)
_MAX_SETTINGS_BYTES = 200_000


class RegistryAccess(NamedTuple):
    """Variables for a command, and files and folders that it must be able to read."""

    env: Mapping[str, str] = {}
    readable: tuple[Path, ...] = ()


NO_ACCESS = RegistryAccess()


def get_user_access(environ: Mapping[str, str]) -> RegistryAccess:
    """Return all registry settings of the user, with credentials."""
    chosen = {
        name: value for name, value in environ.items() if value and _is_registry_variable(name)
    }
    files = _find_settings_files(environ)
    env = {**chosen, **{name: str(path) for name, path in files.items()}}
    inside = [value for path in files.values() for value in _read_values(path)]

    return RegistryAccess(env, tuple(_find_existing_paths([*env.values(), *inside])))


def get_anonymous_access(environ: Mapping[str, str]) -> RegistryAccess:
    """Return the registry settings without credentials.

    Tokens, passwords, user names in URLs and settings files are left out.
    """
    files = _find_settings_files(environ)
    known = {
        name: value
        for name, value in environ.items()
        if value and _is_registry_variable(name) and name not in files
    }
    settings = {
        **_read_pip_settings(files.get("PIP_CONFIG_FILE")),
        **_read_npm_settings(files.get("NPM_CONFIG_USERCONFIG")),
        **known,
    }
    env = {
        name: _strip_credentials(value)
        for name, value in settings.items()
        if not _CREDENTIAL_NAME.search(name)
        and not name.upper().endswith(("CONFIG", "CONFIG_FILE"))
    }

    return RegistryAccess(env, tuple(_find_existing_paths(env.values())))


def _is_registry_variable(name: str) -> bool:
    upper = name.upper()
    if upper in _EXACT_NAMES:
        return True
    prefix = next((prefix for prefix in _NAME_PREFIXES if upper.startswith(prefix)), None)
    return prefix is not None and bool(_RELEVANT_NAME.search(upper.removeprefix(prefix)))


def _find_settings_files(environ: Mapping[str, str]) -> dict[str, Path]:
    """Return the user's settings files, by the variable that points a tool to each.

    The variables are needed because a job has its own home folder.
    """
    home = Path(environ.get("HOME", "/nonexistent"))
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    places = {
        "PIP_CONFIG_FILE": (config / "pip/pip.conf", home / ".pip/pip.conf"),
        "NPM_CONFIG_USERCONFIG": (home / ".npmrc",),
        "GOENV": (config / "go/env",),
        "UV_CONFIG_FILE": (config / "uv/uv.toml",),
    }

    found = {}
    for name, paths in places.items():
        named = (Path(environ[name]),) if environ.get(name) else paths
        if (path := next((path for path in named if path.is_file()), None)) is not None:
            found[name] = path.resolve()

    return found


def _read_values(path: Path) -> list[str]:
    """Return the values in a settings file.

    Paths among them must be readable for the setup too.
    """
    return [
        line.partition("=")[2].strip() for line in _read_text(path).splitlines() if "=" in line
    ] + _read_text(path).split()


def _read_text(path: Path) -> str:
    try:
        return read_text_file(path, _MAX_SETTINGS_BYTES, follow_link=True).text
    except (OSError, PhasegateError):
        return ""


def _find_existing_paths(values: Iterable[str]) -> Iterator[Path]:
    """Yield the absolute paths and file URLs among settings that exist on this machine.

    The root folder is skipped: it would expose everything.
    """
    seen = set()

    for word in (word for value in values for word in re.split(r"[\s,\"']+", value)):
        if word.startswith("file://"):
            path = unquote(urlsplit(word).path)
        else:
            path = word

        if (
            path.startswith("/")
            and path.count("/") > 1
            and path not in seen
            and os.path.exists(path)  # noqa: PTH110 - it may be shut
        ):
            seen.add(path)
            yield Path(path)


def _read_pip_settings(path: Path | None) -> dict[str, str]:
    """Read pip's index options as environment variables; empty if unreadable."""
    if path is None:
        return {}

    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(_read_text(path))
    except Error:
        return {}

    sections = [name for name in ("global", "install") if parser.has_section(name)]
    options = {
        key: value for name in sections for key, value in parser.items(name) if key in _PIP_OPTIONS
    }

    return {
        f"PIP_{key.upper().replace('-', '_')}": " ".join(value.split())
        for key, value in options.items()
    }


def _read_npm_settings(path: Path | None) -> dict[str, str]:
    found = (
        (_NPM_OPTIONS.match(line.strip()) for line in _read_text(path).splitlines()) if path else ()
    )
    return {
        f"npm_config_{match[1].replace('-', '_')}": match[2].strip().strip("\"'")
        for match in found
        if match
    }


def _strip_credentials(value: str) -> str:
    return _URL.sub(lambda found: _strip_url_credentials(found[0]), value)


def _strip_url_credentials(address: str) -> str:
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


def list_credentials(access: RegistryAccess) -> tuple[bytes, ...]:
    """Return the secrets that must not appear in the output of a command with this access."""
    named = [value for name, value in access.env.items() if _CREDENTIAL_NAME.search(name)]
    files = [Path(value) for name, value in access.env.items() if name in _FILE_VARIABLES]
    values = [*access.env.values(), *(value for path in files for value in _read_values(path))]
    passwords = [
        part
        for value in values
        for address in _URL.findall(value)
        for part in _extract_url_credentials(address)
    ]

    tokens = [
        line.partition("=")[2].strip()
        for path in files
        for line in _read_text(path).splitlines()
        if _CREDENTIAL_NAME.search(line.partition("=")[0])
    ]

    return tuple(value.encode() for value in dict.fromkeys([*named, *passwords, *tokens]) if value)


def _extract_url_credentials(address: str) -> list[str]:
    name, found, _ = urlsplit(address).netloc.rpartition("@")
    if found:
        return [name, name.partition(":")[2], unquote(name.partition(":")[2])]
    return []
