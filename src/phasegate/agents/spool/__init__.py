"""Requests from inside a job to the orchestrator.

The server side and the shims copied into the job.
"""
