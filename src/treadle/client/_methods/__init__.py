"""The protocol's methods as Python methods."""
