"""Our entry in the settings of an agent program: added, removed, and nothing else touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phasegate.core.agents.harnesses import HARNESSES
from phasegate.engine.tools.agent_settings import (
    SettingsEntry,
    apply_change,
    hook_entry,
    plan_install,
    plan_removal,
    server_entry,
)
from phasegate.errors import ConfigError

ROWS = [row for row in HARNESSES.values() if row.hooks]
HOOKS = next(row.hooks for row in ROWS if row.hooks)
ENTRIES = [hook_entry(row.hooks) for row in ROWS if row.hooks] + [
    server_entry(row.mcp) for row in HARNESSES.values() if row.mcp
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.what} {entry.file}")
def test_what_was_installed_is_removed_without_a_trace(
    tmp_path: Path, entry: SettingsEntry
) -> None:
    (tmp_path / ".git").mkdir()
    change = plan_install(tmp_path, entry)
    assert (change.outcome, change.before, change.mode) == ("written", None, 0o644)
    assert [*tmp_path.iterdir()] == [tmp_path / ".git"]
    apply_change(change)
    assert (tmp_path / entry.file).read_text() == change.after
    assert plan_install(tmp_path, entry).outcome == "unchanged"
    apply_change(plan_removal(tmp_path, entry))
    assert [*tmp_path.iterdir()] == [tmp_path / ".git"]
    assert plan_removal(tmp_path, entry).outcome == "not there"


def test_other_settings_and_the_mode_of_the_file_are_kept(tmp_path: Path) -> None:
    entry = hook_entry(HOOKS)
    path = tmp_path / entry.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"mine": [1, 2]}\n')
    path.chmod(0o600)
    change = plan_install(tmp_path, entry)
    apply_change(change)
    assert change.outcome == "hook added"
    assert json.loads(path.read_text())["mine"] == [1, 2]
    assert path.stat().st_mode & 0o777 == 0o600
    removal = plan_removal(tmp_path, entry)
    apply_change(removal)
    assert removal.outcome == "hook removed"
    assert json.loads(path.read_text()) == {"mine": [1, 2]}
    assert plan_removal(tmp_path, entry).outcome == "unchanged"


@pytest.mark.parametrize("content", ["{", "[]", '{"hooks": 7}'])
def test_settings_that_cannot_be_read_stay_as_they_are(tmp_path: Path, content: str) -> None:
    entry = hook_entry(HOOKS)
    path = tmp_path / entry.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    for plan in (plan_install, plan_removal):
        with pytest.raises(ConfigError) as raised:
            plan(tmp_path, entry)
        assert entry.manual_hint in raised.value.hint
    assert path.read_text() == content
