"""Encode and decode journal entries, and keep the journals of features, packages and questions."""
