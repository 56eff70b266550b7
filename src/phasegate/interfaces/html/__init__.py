"""HTML and SVG shared by the board and the report."""
