"""Analyses command lines: what they do, whether they are dangerous, which rules match.

Independent of threads and policies; only the rules read files. `treadle.shell` has the syntax and
the list of safe commands.
"""
