"""A network of chosen hosts: a command without a network reaches them through a gate, judged."""
