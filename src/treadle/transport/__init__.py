"""Moves whole messages between two peers; knows nothing of what they say."""
