"""Policies for commands, and the means to enforce them; knows no threads and no wire."""
