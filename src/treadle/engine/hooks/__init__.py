"""Hooks of a thread: programs and MCP tools that run at set points of a turn."""
