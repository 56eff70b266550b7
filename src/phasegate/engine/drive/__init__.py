"""Drive features and packages: orders, the step loop, resuming, detached runs, forge polling."""
