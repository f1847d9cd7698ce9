"""The conversation between a thread and its model: input, context, requests and items."""
