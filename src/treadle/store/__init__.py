"""Where threads are kept: journals, rollout files and the index over them."""
