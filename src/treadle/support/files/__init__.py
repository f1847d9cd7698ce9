"""Files, locks, descriptors and programs of the machine."""
