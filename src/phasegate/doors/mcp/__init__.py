"""The MCP server: Phasegate as tools of an agent program that a person works in."""
