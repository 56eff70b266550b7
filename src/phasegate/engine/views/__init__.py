"""Read-only views. Every interface and every `--json` output is rendered from these."""
