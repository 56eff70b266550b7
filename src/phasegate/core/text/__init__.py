"""Text primitives: escapes, YAML nodes, XML, Markdown lines, light types for fast commands."""
