"""Checkouts and features as commits, from which another machine continues."""
