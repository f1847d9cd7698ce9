"""Sub-agents: threads that work for a parent thread."""
