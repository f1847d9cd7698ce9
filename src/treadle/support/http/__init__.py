"""HTTP/1.1: a client for asyncio that is quick to import, and the one response of a listener."""
