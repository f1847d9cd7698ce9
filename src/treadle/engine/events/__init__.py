"""A thread's log of events and server requests, and the readers that follow it."""
