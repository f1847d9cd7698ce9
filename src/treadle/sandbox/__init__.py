"""Sandbox policies for commands and the backends that enforce them; independent of threads."""
