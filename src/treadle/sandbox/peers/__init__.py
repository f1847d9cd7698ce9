"""Distinguishes clients of a listener from the server's own sandboxed commands."""
