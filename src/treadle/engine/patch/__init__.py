"""Patches in the format of the model: parsed, planned against files, and applied."""
