"""What the model can do besides talking."""
