"""Clients for pull requests on GitHub, GitLab and Gitea: one module per forge, one interface
(`port.Forge`).
"""
