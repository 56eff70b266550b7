"""Workflows and phases as data, the gate decision, the lifecycle of a workflow, and spending
limits.
"""
