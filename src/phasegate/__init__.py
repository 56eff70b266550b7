"""Phasegate: a spec-driven orchestrator for coding agents."""
