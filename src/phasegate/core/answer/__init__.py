"""Parse an agent's answer.

The package scans untrusted text for markers, reads the JSON result and decides the verdict.
"""
