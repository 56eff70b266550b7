"""The user's repository: objects, refs, merges, remotes, and the user's own checkout."""
