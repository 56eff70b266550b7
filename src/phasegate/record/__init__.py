"""What happened: the store, the state.json view, the audit trail, artifacts."""
