"""Current specifications: requirement files by capability, deltas of features, and drift."""
