"""Support for agents that speak the Agent Client Protocol: in-sandbox client and permissions."""
