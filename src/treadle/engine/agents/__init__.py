"""Agents that work for other agents: threads with a parent."""
