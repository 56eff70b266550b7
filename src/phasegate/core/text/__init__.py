"""Text primitives that other packages build on.

Escapes, YAML nodes, XML, Markdown lines, light types for fast commands.
"""
