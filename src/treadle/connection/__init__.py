"""One JSON-RPC conversation between two peers: the same class on the client and the server."""
