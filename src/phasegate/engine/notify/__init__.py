"""Decide who is notified of what (`[notify]`), and send it."""
