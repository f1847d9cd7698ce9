"""Tasks, worker threads, locks and timers."""
