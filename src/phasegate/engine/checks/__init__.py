"""Run setup, tests and other checks: detection, the baseline, phase commands, a package's manifest."""
