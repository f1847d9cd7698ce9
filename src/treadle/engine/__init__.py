"""Threads and turns: the agent itself, independent of any transport."""
