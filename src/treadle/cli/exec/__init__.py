"""`treadle exec`: runs one task and prints its events."""
