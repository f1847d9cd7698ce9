"""Moves whole messages between two peers, without knowledge of their content."""
