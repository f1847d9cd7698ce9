"""Decides whether an action may run, and asks the user where the policy requires it."""
