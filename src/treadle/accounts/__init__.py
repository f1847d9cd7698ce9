"""Accounts: stored logins, the ways to log in, and the services that issue and accept tokens."""
