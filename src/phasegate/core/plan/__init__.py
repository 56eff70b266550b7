"""Plans: requirements, tasks, work packages, their dependencies, consistency checks and
traceability.
"""
