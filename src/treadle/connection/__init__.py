"""One conversation between two peers: the same class on the client's and the server's end."""
