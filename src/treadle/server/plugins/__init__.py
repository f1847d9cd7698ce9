"""Plugins of a server: which are active, what can be installed, and where from."""
