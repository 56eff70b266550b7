"""Detect how a project is set up and tested, by language, from its files."""
