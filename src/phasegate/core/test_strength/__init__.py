"""Decide whether the tests of a change would notice it, and whether it weakens tests."""
