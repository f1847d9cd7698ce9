"""What the server requests of its clients: decisions, older forms of them, and tokens."""
