"""Run features on several machines: Temporal workflow, workers, code transfer, health checks."""
