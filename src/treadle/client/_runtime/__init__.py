"""How the client works: connection, routing, server requests, reconnection."""
