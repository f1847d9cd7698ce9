"""The programs of hooks: how they run, and which files of theirs commands may have written."""
