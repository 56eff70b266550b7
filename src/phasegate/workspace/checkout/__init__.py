"""An agent's checkout: create, scan, read its git directory, remove."""
