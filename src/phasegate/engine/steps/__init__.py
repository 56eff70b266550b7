"""The steps of a feature and of a package, as functions from values to events.

No store, no locks.
"""
