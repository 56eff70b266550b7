"""Drive features and packages: orders from users, the step loop, resuming after a crash, detached runs, forge polling."""
