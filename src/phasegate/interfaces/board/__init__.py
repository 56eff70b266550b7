"""The web board: server-rendered pages on loopback."""
