"""Requests from inside a job to the orchestrator: the server side and the shims copied into the job."""
