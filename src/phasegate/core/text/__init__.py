"""Text primitives that other packages build on: escapes, YAML nodes, XML, Markdown lines, light types for fast commands."""
