"""Commands that a client runs outside any thread: `command/exec` and `process/spawn`."""
