"""Apps of a ChatGPT account in threads: their tools, the names of these, and mentions."""
