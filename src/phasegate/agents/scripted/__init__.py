"""The scripted agent that plays a scenario file: needs no model; used by the demo and tests."""
