"""Models, MCP servers and skills for the engine, as the configuration defines them."""
