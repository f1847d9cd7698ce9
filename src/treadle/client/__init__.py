"""A typed client for any app-server; knows the protocol and nothing of how a server does it."""
