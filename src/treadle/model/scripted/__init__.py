"""A model that plays a script: deterministic, without key or network."""
