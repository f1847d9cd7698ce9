"""Shell commands as text: their words, their parts, and whether they only read.

Pure functions of the argument vector, for servers and clients. They run nothing, read no files, and
know neither threads nor policies.
"""
