"""Detect how a project is set up and checked."""
