"""The client's internals: connection, routing, state of turns, server requests, typed output."""
