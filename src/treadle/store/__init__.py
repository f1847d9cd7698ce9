"""Storage of threads: journals, rollout files and the index over them."""
