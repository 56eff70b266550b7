"""Decide, act, record, again."""
