"""The feature and package state machines: events, state, `decide` (next step) and `apply` (fold an event)."""
