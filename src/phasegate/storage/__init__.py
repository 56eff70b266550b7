"""Durable state: the SQLite journal, the state.json view, audit trails, artifacts, locks."""
