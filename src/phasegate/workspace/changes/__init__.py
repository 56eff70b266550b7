"""What an agent changed in its checkout, and how it becomes commits (harvest)."""
