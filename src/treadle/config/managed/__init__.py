"""Reads what an administrator demands: the values that are allowed, and rules for commands."""
