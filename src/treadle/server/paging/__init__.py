"""Pages of lists, and the cursors that name where the next page begins."""
