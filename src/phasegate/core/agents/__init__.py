"""Facts about agent programs as data.

Harnesses, roles, allowed hosts, settings files, secret values.
"""
