"""Commands of a thread: approval, start, output, input and end."""
