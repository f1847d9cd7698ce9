"""A typed client for any app-server; it depends on the protocol, not on Treadle's server."""
