"""What a working folder holds: documents, skills, its git repository, the diff of a turn."""
