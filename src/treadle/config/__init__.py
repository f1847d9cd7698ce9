"""Configuration: its layers, the merged settings and the origin of each setting."""
