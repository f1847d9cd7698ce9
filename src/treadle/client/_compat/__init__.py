"""Differences between servers and releases, handled before messages are routed."""
