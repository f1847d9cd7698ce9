"""Pages of lists, and the cursors that mark where the next page begins."""
