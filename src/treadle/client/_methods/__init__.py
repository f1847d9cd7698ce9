"""The methods of the protocol as Python methods."""
