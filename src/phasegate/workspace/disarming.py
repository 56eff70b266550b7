"""An agent's git directory made harmless once it was looked at: a person may stand in the checkout and ask git there.

Our own git never works with it. Theirs would: settings, hooks and a directory in the place of another can name programs
that a plain `git status`, or the prompt of a shell, runs outside of every cage.
"""

from __future__ import annotations

from phasegate.workspace.agent_git import fingerprint
from phasegate.workspace.checkout import Checkout, opened_root
from phasegate.workspace.git import Identity
from phasegate.workspace.planting import agents_settings, lay_file
from phasegate.workspace.removal import removal_room

_CONFIG = ".git/config"
_ARMED = (".git", _CONFIG, *(f".git/{name}" for name in ("config.worktree", "commondir", "hooks", "modules")))


def disarm(checkout: Checkout, agent: Identity) -> tuple[str, ...]:
    """Take out what could make a git run something, if it is not as we left it; the names of what was. Commits stay."""
    ours = checkout.record.git_files
    with opened_root(checkout.record) as root:
        now = fingerprint(root, checkout.repository.hash_name)
        changed = tuple(path for path in _ARMED if now.get(path) != ours.get(path))
        if changed:
            with removal_room(checkout.folder.parent) as room:
                for path in changed:
                    room.take_beneath(root, path)
                if _CONFIG in changed and not _is_set(checkout, agent):
                    room.take_beneath(root, ".git")
    return changed


def _is_set(checkout: Checkout, agent: Identity) -> bool:
    """Write our settings anew; False if there is no place for them."""
    try:
        lay_file(checkout.folder / ".git", "config", agents_settings(checkout.repository, agent))
    except OSError:
        return False
    return True
