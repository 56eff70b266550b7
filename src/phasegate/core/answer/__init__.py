"""Parse an agent's answer: scan untrusted text for markers, read the JSON result, decide the verdict."""
