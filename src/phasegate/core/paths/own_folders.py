"""What below the root of a repository is ours, or steers us. For `init` too: light."""

CONFIG_FILE = "phasegate.toml"
# Records and caches, checkouts, a view for others
OWN_FOLDERS = (".phasegate", ".worktrees", ".isdlc")
