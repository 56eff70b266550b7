"""Text shown to users: status, one line per event, next-steps blocks, menus, notifications."""
