"""The profiles as `init` reads them say what the profiles say."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasegate.prompts.profiles import all_profiles
from phasegate.prompts.quick_profiles import commands_in, has_toml_entry, kind_of
from phasegate.rules.profile import commands_of, detect
from phasegate.rules.work_package import PackageChecks

TOOL = Path(__file__).parents[3] / "tools/quick_profiles.py"
PROJECTS: dict[str, dict[str, str]] = {
    "nothing": {"README.md": "x"},
    "rust": {"Cargo.toml": "", "tarpaulin.toml": ""},
    "go": {"go.mod": "", ".golangci.yml": ""},
    "plain python": {"setup.py": ""},
    "a hint only": {"requirements.txt": ""},
    "python": {
        "pyproject.toml": '[a]\nx = ["[tool.mypy]"]\n[project.optional-dependencies]\ndev = ["x"]\n[tool.ruff]\n'
    },
    "dotted keys": {"pyproject.toml": "[tool]\nruff.line-length = 100\nmypy.files = ['src']\n"},
    "inline tables": {"pyproject.toml": "[tool]\nruff = {line-length = 1}\ncoverage = {}\n"},
    "a comment": {"pyproject.toml": "# [tool.ruff]\n[tool.other] # [tool.mypy]\nx = 1\n"},
    "a long string": {"pyproject.toml": '[a]\nb = """\n[tool.ruff]\n"""\n'},
    "quoted": {"pyproject.toml": '["tool".ruff]\nx = 1\n'},
    "an empty value": {"pyproject.toml": '[project]\nname = "x"\n[tool]\nmypy = ""\n'},
    "no TOML": {"pyproject.toml": '["tool.ruff'},
    "typescript": {"package.json": '{"scripts": {"test": "x", "lint": ""}}', "tsconfig.json": "{}"},
    "a broken package.json": {"package.json": "{"},
}


@pytest.mark.parametrize("name", PROJECTS)
def test_both_readings_find_the_same_kind_and_commands(name: str, tmp_path: Path) -> None:
    files = PROJECTS[name]
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    profile, kind = detect(all_profiles(), files), kind_of(frozenset(files))
    assert (kind and kind.name) == (profile and profile.name)
    if kind is not None:
        assert commands_in(str(tmp_path), frozenset(files), kind) == commands_of(profile, files, PackageChecks())


def test_the_shipped_file_is_made_from_the_profiles() -> None:
    assert subprocess.run([sys.executable, TOOL, "--check"]).returncode == 0


_KEYS = st.sampled_from(["tool", "tool.ruff", "tool.ruff.lint", "tool.mypy", "project.test", "build-system"])
_LINES = st.one_of(
    _KEYS.map(lambda key: f"[{key}]"),
    st.sampled_from(
        ["files = ['a']", "ruff = 1", "x = [", "]", "  'a',", "# [tool.ruff]", "mypy.files = []", 'a = "b"']
    ),
)


@given(st.lists(_LINES, max_size=8).map("\n".join), _KEYS)
def test_the_quick_look_at_toml_never_differs_from_a_parser(text: str, key: str) -> None:
    try:
        value: object = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    assert has_toml_entry(text, key) in (None, value is not None)
