"""Evidence that Phasegate gathers itself: deliverables, tests, lint, coverage, commits, secrets."""
