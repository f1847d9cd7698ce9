"""Writes to the user's `config.toml`."""
