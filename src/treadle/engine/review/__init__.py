"""Code review turns."""
