"""Search for files by parts of their paths, in the order that Codex gives."""
