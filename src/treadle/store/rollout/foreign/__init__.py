"""Reads rollout lines that other programs wrote."""
