"""Rollout files: one file per thread, in the format of Codex."""
