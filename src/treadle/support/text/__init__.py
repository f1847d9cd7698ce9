"""JSON, base64, URLs, secrets and terminal output as text."""
