"""Lines of rollout files that other programs wrote."""
