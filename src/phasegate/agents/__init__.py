"""Adapters for agent programs.

One module per program, with shared packages for streams, ACP, the request spool and sandboxed runs.
"""
