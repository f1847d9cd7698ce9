"""Reports of users: collected on this machine, and sent only where the configuration says."""
