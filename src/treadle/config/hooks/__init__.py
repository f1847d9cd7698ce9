"""Reads the hooks of the configuration: their files, their trust, and what is wrong with them."""
