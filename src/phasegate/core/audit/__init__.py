"""The hash chain of state changes and the format of a job's audit trail."""
