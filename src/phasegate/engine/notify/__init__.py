"""Decide which events the user is notified of (`[notify]`), and send the notifications."""
