"""WebSocket: frames and HTTP without i/o, the handshake, connections and the listener."""
