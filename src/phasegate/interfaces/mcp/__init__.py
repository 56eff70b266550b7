"""The MCP server: offers Phasegate as tools to an agent program."""
