"""What a command line means, before it runs: its parts, whether it only reads, which rule applies.

Pure functions of the argument vector; only the rules touch files. Knows no thread and no policy.
"""
