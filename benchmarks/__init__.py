"""Measures Treadle and the reference binary side by side, in one run, taking turns."""
