"""Threads and turns: what an agent is, apart from any wire."""
