"""MCP servers of a thread: their tools, resources and elicitations."""
