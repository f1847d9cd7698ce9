"""The index over all threads of a home, in SQLite."""
