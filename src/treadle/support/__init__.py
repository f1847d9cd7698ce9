"""Clock, ids, logs, tasks: shared by all other packages. Knows nothing of the protocol."""
