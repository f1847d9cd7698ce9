"""The connection to one MCP server, over a process or HTTP."""
