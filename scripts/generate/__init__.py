"""Writes the source files and pages that follow from the protocol's table of methods."""
