"""Where the engine gets models, MCP servers and skills: from the configuration."""
