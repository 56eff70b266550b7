"""The web board: pages made on the server, for the browser of the person at this machine."""
