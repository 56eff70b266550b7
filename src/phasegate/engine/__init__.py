"""Orchestration: decide the next step, run it, record the result.

Sub-packages are layered; see pyproject.toml.
"""
