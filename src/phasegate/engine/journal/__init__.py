"""Journal entries and the journals of features, packages and questions."""
