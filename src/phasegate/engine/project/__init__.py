"""An opened repository: configuration, ports, agents, forge, secrets.

Everything else receives a Project.
"""
