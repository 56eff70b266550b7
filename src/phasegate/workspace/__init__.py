"""All git: worktrees, what changed, harvest, merge."""
