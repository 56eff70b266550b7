"""Name Phasegate's own files and folders below the root of a repository.

This module imports nothing, because `init` must start fast.
"""

CONFIG_FILE = "phasegate.toml"
# Records and caches, checkouts, and the state that other tools read
OWN_FOLDERS = (".phasegate", ".worktrees", ".isdlc")
