"""Open a repository: its configuration, ports, agents, forge and secrets.

All other parts of the engine receive a Project.
"""
