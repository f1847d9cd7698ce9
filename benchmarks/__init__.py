"""Measures Treadle and the reference binaries side by side, in alternating rounds."""
