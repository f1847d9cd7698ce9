"""Shell commands as text: their words, their parts, and whether they only read.

Pure functions of the argument vector, for the server and for clients alike. Runs nothing, reads no
file, and knows neither threads nor policies.
"""
