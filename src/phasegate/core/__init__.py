"""Decisions without I/O: the same input gives the same output on any machine.

Sub-packages are layered; see pyproject.toml.
"""
