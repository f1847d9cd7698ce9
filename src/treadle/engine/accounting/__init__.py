"""Tokens, budgets and goals of a thread."""
