"""The client's internals: connection, routing, server requests, reconnection."""
