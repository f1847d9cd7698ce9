"""Patches in the model's own format: read, worked out against files, and carried out."""
