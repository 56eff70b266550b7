"""Parse an agent's answer.

Scan untrusted text for markers, read the JSON result, decide the verdict.
"""
