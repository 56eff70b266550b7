"""Any agent that speaks the Agent Client Protocol: harness, in-sandbox client, permissions."""
