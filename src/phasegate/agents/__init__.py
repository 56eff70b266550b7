"""Adapters for agent programs: one module per program, with shared packages for streams, ACP, the request spool and sandboxed runs."""
