"""The feature and package state machines.

Events, state, `decide` (next step) and `apply` (fold an event).
"""
