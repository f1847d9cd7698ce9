"""The working folder: AGENTS.md files, skills, git repository, and the diff of a turn."""
