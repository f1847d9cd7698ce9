"""Clock, ids, logs, tasks: what any part may use. Knows nothing of the protocol."""
