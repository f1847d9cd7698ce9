"""What a command line means to the agent: what it does, its dangers, the rules that it meets.

Only the rules touch files. Knows no thread and no policy. `treadle.shell` has the syntax and the
list of safe commands.
"""
