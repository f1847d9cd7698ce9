"""The process that owns commands: starts them, limits them and ends all that they started."""
