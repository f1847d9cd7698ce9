"""HTTP requests to providers and the event streams that they answer with."""
