"""HTTP requests to providers, and their event streams."""
