"""Drive features and packages.

Orders from users, the step loop, resuming after a crash, detached runs, forge polling.
"""
