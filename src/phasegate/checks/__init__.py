"""Evidence, gathered by us: deliverables, tests, linter, coverage, commits."""
