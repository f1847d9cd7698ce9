"""MCP servers: their tools, documents and questions, as a thread uses them."""
