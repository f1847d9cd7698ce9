"""Plans: those that the model proposes, and those that the user has approved."""
