"""Conversations by voice or text with a realtime model, which hands tasks to the thread's agent."""
