"""HTML and pictures that the board and the report have in common."""
