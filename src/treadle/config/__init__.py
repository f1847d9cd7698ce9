"""The configuration: its layers, what they amount to, and where each setting came from."""
