"""Files for clients: reading, writing and watching."""
