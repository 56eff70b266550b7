"""Read-only views of the journal and the store: the values that all interfaces render."""
