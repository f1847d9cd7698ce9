"""Threads at rest: read, forked, recovered after a crash, suspended for the next server."""
