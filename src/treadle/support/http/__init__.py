"""An HTTP/1.1 client for asyncio: quick to import, strict, without redirects and cookies."""
