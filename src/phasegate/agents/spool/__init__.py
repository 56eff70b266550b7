"""Requests from inside a job to the orchestrator: the server and the shims copied into the job."""
