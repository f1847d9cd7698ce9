"""Apps: what the directory of a ChatGPT account lists, and which of them are connected."""
