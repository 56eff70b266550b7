"""Text for users: status, one line per event, next-steps blocks, menus and notifications."""
