"""The MCP server: Phasegate as tools for an agent program."""
