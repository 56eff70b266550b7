"""HTML shared by the board and the report: Jinja2 templates and the values that they show."""
