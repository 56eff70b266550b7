"""The feature and package state machines.

Each has events, a state, a `decide` function (the next steps) and an `apply` function (folds an
event into the state).
"""
