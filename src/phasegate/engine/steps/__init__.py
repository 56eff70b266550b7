"""Steps of a feature and of a work package, as functions from values to events.

They write no journal and take no run lock.
"""
